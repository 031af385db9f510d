"""Write hw_notebook.ipynb from hw_notebook.py: python -m apps.notebook (make notebook).

The source is a program in jupytext's percent format: "# %%" starts a code cell, "# %% [markdown]" a
text cell. The notebook has no outputs, and the same source always gives the same bytes. Tags are
the only metadata kept: the site hides the input of cells tagged "remove-input".
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE, NOTEBOOK = ROOT / "hw_notebook.py", ROOT / "hw_notebook.ipynb"


def notebook_text() -> str:
    """Return the text of the notebook's file; ImportError without jupytext."""
    import jupytext
    import nbformat

    notebook = jupytext.read(SOURCE)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        tags = cell.metadata.get("tags")
        cell.id, cell.metadata = f"cell-{number:02}", {"tags": tags} if tags else {}
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    text: str = nbformat.writes(notebook)
    return text if text.endswith("\n") else text + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook_text(), encoding="utf-8")
