"""Web: routes, pages, static files and the OpenAPI document."""
