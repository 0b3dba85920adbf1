"""Tells nobody, and remembers what it would have said: for rehearsals and for tests."""

from untildone.core.notice import Note


class Quiet:
    """A channel that leads nowhere."""

    def __init__(self, *, trouble: str = "") -> None:
        self.name = "nobody"
        self.notes: list[Note] = []
        self._trouble = trouble

    async def send(self, note: Note) -> str:
        """Keep the note; answer with the trouble that was ordered."""
        self.notes.append(note)
        return self._trouble
