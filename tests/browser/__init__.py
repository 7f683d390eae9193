"""A package, so that fixtures of this folder end with it: an open Playwright keeps the thread's event loop running."""
