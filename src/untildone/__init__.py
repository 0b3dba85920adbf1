"""untildone runs Claude Code until the work is really done, and can prove it."""

__version__ = "0.1.0"
