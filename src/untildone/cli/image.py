"""`image build`: makes the image that agents in containers work in, unless another one is named."""

import os
import subprocess
from importlib.resources import files

import click

from untildone.cli.guarding import operator_only
from untildone.cli.streams import put, say
from untildone.core.policy import ENGINES
from untildone.errors import NoSandbox
from untildone.sandbox.containers import DEFAULT_IMAGE, Engine, find_engine


@click.group()
def image() -> None:
    """The image that agents in containers work in."""


@image.command(context_settings={"ignore_unknown_options": True})
@click.option("--sandbox", "kind", type=click.Choice(ENGINES), help="Build with this one. Without it: what is there.")
@click.option("--base", metavar="IMAGE", help="Build on this Debian or Ubuntu. Without it: debian:stable-slim.")
@click.option("--name", metavar="NAME", default=DEFAULT_IMAGE, help="What the image is called.")
@click.option("--print", "only_print", is_flag=True, help="Print the Containerfile, as a start for one of your own.")
@click.argument("more", nargs=-1, type=click.UNPROCESSED)
@operator_only
def build(kind: str | None, base: str | None, name: str, more: tuple[str, ...], *, only_print: bool) -> None:
    """Build the image that `--sandbox docker` and `--sandbox podman` use where no other is named.

    \b
      untildone image build
      untildone image build --base debian:bookworm-slim
      untildone image build --print > Containerfile
      untildone image build -- --network host

    What follows `--` goes to `docker build` or `podman build`. An image of your own needs git and the C library of
    Debian, Ubuntu or Fedora; Claude Code need not be in it.
    """  # noqa: D301 -- click wants the character itself
    text = files("untildone.sandbox").joinpath("Containerfile").read_text("utf-8")
    if only_print:
        return put(text.rstrip("\n"))
    engine = _engine(kind)
    words = ["build", "--tag", name, *(["--build-arg", f"BASE={base}"] if base else []), *more, "-"]
    done = subprocess.run(  # noqa: S603, TID251 - what it prints is for the user
        [engine.program, *words], env=dict(engine.env), input=text, text=True, check=False
    )
    if done.returncode:
        raise NoSandbox(f"{engine.kind} could not build the image: what it printed says why")
    named = "" if name == DEFAULT_IMAGE else f" --image {name}"
    return say(f"{name} is there: `untildone run --sandbox {engine.kind}{named}` uses it")


def _engine(kind: str | None) -> Engine:
    troubles = []
    for one in [kind] if kind else ENGINES:
        try:
            return find_engine(one, os.environ)
        except NoSandbox as trouble:
            troubles.append(str(trouble))
    raise NoSandbox(f"{'; '.join(troubles)}: install one of them, or start it")
