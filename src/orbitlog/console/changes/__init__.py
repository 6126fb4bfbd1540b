"""Changes: each is planned with before and after, confirmed by its target, audited, and only then carried out."""
