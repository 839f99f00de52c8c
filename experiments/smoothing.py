"""Certified accuracy of private models: the flagship beside its rivals.

python -m experiments.smoothing --scale=smoke --out_dir=runs/smoothing_smoke
python -m experiments.smoothing --scale=full --dataset=mnist \
  --out_dir=runs/smoothing --cells=dp_smooth-3

smoke takes minutes on mnist_5k, small about an hour on MNIST, full many hours;
ablation compares settings of the flagship on held-out training images. What is
done is on disk cell by cell; a killed run goes on with the same command and
--resume.
"""

from __future__ import annotations

import dataclasses

from experiments import command
from experiments import grid
from experiments import grid_flags
from experiments import grid_page
from experiments import grid_plots
from experiments import smoothing_cells
from experiments import smoothing_page
from experiments import smoothing_scales


class Experiment(grid.Experiment):
  """The cells of one scale and data set, in one folder.

  Args:
    out_dir: where everything goes.
    scale_name: for the page.
    scale: its sizes.
    dataset: in its own value range.
    command_line: for the page.
  """

  def __init__(
    self,
    out_dir: str,
    scale_name: str,
    scale: smoothing_cells.Scale,
    dataset,
    command_line: str = "",
  ):
    self.dataset = dataset
    self.scale = scale
    super().__init__(
      out_dir,
      smoothing_cells.cells(scale),
      {
        "scale": scale_name,
        "dataset": dataset.name,
        "data": f"{dataset.num_train:,} training images. {dataset.split}",
        "settings": dataclasses.asdict(scale),
        "command": command_line,
      },
      fixed=("scale", "dataset", "data", "settings"),
    )
    self._model = (None, None)  # the last model that was loaded

  def payload(self) -> dict:
    """Adds what is published."""
    published = smoothing_cells.PUBLISHED.get(self.dataset.name)
    return {**super().payload(), "published": published}

  def measure(self, cell: smoothing_cells.Cell) -> dict:
    """The work of one cell."""
    import tensorflow as tf

    from experiments import smoothing_measure
    from tf_privrob import run_folder

    folder = run_folder.RunFolder(self.folder.file(cell.model))
    if self._model[0] != cell.model:
      self._model = (None, None)
      tf.keras.backend.clear_session()  # many cells would fill the memory
    if cell.part == "train":
      return smoothing_measure.train_cell(
        cell, self.scale, self.dataset, folder
      )
    if self._model[0] is None:
      self._model = (cell.model, smoothing_measure.load_model(folder))
    kind = cell.part.split("-")[0]
    work = {
      "certify": smoothing_measure.certify_cell,
      "attack": smoothing_measure.attack_cell,
      "claimed": smoothing_measure.claimed_cell,
      "rules": smoothing_measure.rules_cell,
    }[kind]
    return work(cell, self.scale, self.dataset, self._model[1], folder)

  def write(self) -> None:
    """results.json, table.md, the figures and index.html."""
    results = self.write_results()
    title = f"Private and certified: {self.dataset.name}"
    tables = smoothing_page.tables(self.record, results)
    notes = smoothing_page.notes(self.record)
    heading = f"{title}, scale {self.record['scale']}"
    self.folder.write_text(
      "table.md", grid_page.markdown(heading, tables, notes)
    )
    pictures = []
    for dp_epsilon in self.scale.dp_epsilons:
      figure = grid_plots.draw(
        smoothing_page.curves_figure, self.record, results, dp_epsilon
      )
      if figure is None:
        continue
      path = self.folder.file(f"curves-{dp_epsilon:g}.svg")
      grid_plots.save(figure, path)
      caption = f"Certified accuracy, proven dp_epsilon {dp_epsilon:g}"
      svg = path.read_text(encoding="utf-8")
      pictures.append(grid_page.Picture(f"{dp_epsilon:g}", caption, svg))
    page = grid_page.html(
      self.record, title, len(results), pictures, tables, notes
    )
    self.folder.write_text("index.html", page)


def main() -> None:
  """Runs as the flags say and prints the table."""
  name, scale_name = grid_flags.DATASET.value, grid_flags.SCALE.value
  wanted = grid_flags.check(
    smoothing_scales.SCALES,
    smoothing_cells.DATASETS,
    lambda: smoothing_cells.cells(smoothing_scales.SCALES[scale_name]),
  )

  def make(out_dir, command_line):
    from experiments import smoothing_measure

    scale = smoothing_scales.SCALES[scale_name]
    dataset = smoothing_measure.load_dataset(
      name, grid_flags.DATA_DIR.value, scale.holdout
    )
    return Experiment(out_dir, scale_name, scale, dataset, command_line)

  grid_flags.run(make, wanted)


if __name__ == "__main__":
  command.run(main)
