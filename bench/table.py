"""Results for people: one table for each bench."""

from rich.console import Console
from rich.table import Table

from result import Figure, Result


def show(results: list[Result], console: Console) -> None:
    """Print the tables, and whether every gate holds."""
    for result in results:
        console.print(_table(result))
        console.print()
    missed = [figure.name for result in results for figure in result.figures if not figure.passed]
    console.print("[red]over the gate:[/red] " + "; ".join(missed) if missed else "[green]every gate holds[/green]")


def _table(result: Result) -> Table:
    table = Table(title=result.title, title_justify="left", title_style="bold", pad_edge=False, expand=False)
    table.add_column("measured")
    table.add_column("value", justify="right")
    table.add_column("gate", justify="right")
    table.add_column("")
    for figure in result.figures:
        style = "" if figure.at_most is None else "green" if figure.passed else "red"
        gate = "" if figure.at_most is None else f"≤ {figure.at_most:g} {figure.unit}"
        table.add_row(figure.name, f"[{style}]{amount(figure)}[/]" if style else amount(figure), gate, figure.note)
    return table


def amount(figure: Figure) -> str:
    """The value with its unit, as precise as it deserves."""
    digits = 0 if figure.value == round(figure.value) else 3 if figure.value < 0.1 else 2 if figure.value < 10 else 1
    return f"{figure.value:,.{digits}f} {figure.unit}".strip()
