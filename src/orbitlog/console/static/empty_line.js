// @ts-check

/**
 * Replace the content of a component by one line of text.
 * @param {HTMLElement} component
 * @param {string} text
 */
export function showEmptyLine(component, text) {
  const line = document.createElement("p");
  line.className = "empty";
  line.textContent = text;
  component.replaceChildren(line);
}
