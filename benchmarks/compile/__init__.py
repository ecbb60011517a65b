"""How fast the compiler is, and how good its answers are."""
