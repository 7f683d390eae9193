"""SpecViz: speculative decoding taught with a real engine."""

__version__ = "0.1.0"
