"""The endpoint people write first: FastAPI, pydantic models, SQLAlchemy's ORM. Idempotent, durable, nothing tuned."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI
from pydantic import BaseModel, Field
from sqlalchemy import JSON, BigInteger, String, event, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Its tables."""


class Event(Base):
    """An event of a run."""

    __tablename__ = "plain_events"
    run_id: Mapped[str] = mapped_column(String(100), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    sandbox_id: Mapped[str] = mapped_column(String(100))
    at: Mapped[float]
    kind: Mapped[str] = mapped_column(String(10))
    type: Mapped[str] = mapped_column(String(200))
    source: Mapped[str] = mapped_column(String(10))
    version: Mapped[int]
    data: Mapped[dict[str, Any]] = mapped_column(JSON)


class EventIn(BaseModel):
    """An event, as it comes."""

    event_type: str = Field(min_length=1, max_length=200)
    event_data: dict[str, Any]
    seq: int = Field(ge=1)
    at: float
    source: Literal["agent", "worker", "system"] = "worker"
    kind: Literal["control", "trace"] = "control"
    version: int = 1


class BatchIn(BaseModel):
    """Events of one run."""

    run_id: str = Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}$")
    events: list[EventIn] = Field(max_length=1000)


class ReceiptOut(BaseModel):
    """What became of them."""

    last_seq: int
    stored: int


def make_plain_app(url: str) -> FastAPI:
    """The application."""
    engine = _engine(url)
    make_session = async_sessionmaker(engine, expire_on_commit=False)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        yield
        await engine.dispose()

    async def session() -> AsyncIterator[AsyncSession]:
        async with make_session() as opened:
            yield opened

    app = FastAPI(lifespan=lifespan)

    @app.post("/api/v1/sandboxes/{sandbox_id}/events")
    async def post_events(sandbox_id: str, batch: BatchIn, db: Annotated[AsyncSession, Depends(session)]) -> ReceiptOut:
        seqs = [one.seq for one in batch.events]
        there = set(await db.scalars(select(Event.seq).where(Event.run_id == batch.run_id, Event.seq.in_(seqs))))
        new = [one for one in batch.events if one.seq not in there]
        db.add_all(
            Event(
                run_id=batch.run_id,
                seq=one.seq,
                sandbox_id=sandbox_id,
                at=one.at,
                kind=one.kind,
                type=one.event_type,
                source=one.source,
                version=one.version,
                data=one.event_data,
            )
            for one in new
        )
        await db.commit()
        return ReceiptOut(last_seq=max(seqs, default=0), stored=len(new))

    return app


def _engine(url: str) -> AsyncEngine:
    if not url.startswith("sqlite"):
        return create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=16)
    engine = create_async_engine(url.replace("sqlite://", "sqlite+aiosqlite://"), connect_args={"timeout": 60})

    @event.listens_for(engine.sync_engine, "connect")
    def _as_durable_as_ours(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    return engine
