// Applies the chosen colour scheme before the first paint; without a choice the system decides.
{
  let scheme = null;
  try { scheme = localStorage.getItem("orbitlog-scheme"); } catch { /* storage is switched off */ }
  if (scheme === "light" || scheme === "dark") document.documentElement.dataset.scheme = scheme;
}
