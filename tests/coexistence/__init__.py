"""A writer and a cleaner in one log dir, as `docs/coexistence.md` lays down."""
