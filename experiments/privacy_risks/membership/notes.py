"""Notes of the page of `privacy_risks.membership`: how to read it all."""

from __future__ import annotations

from experiments.privacy_risks.membership import findings as findings_lib
from experiments.privacy_risks.membership import page as membership_page

Results = findings_lib.Results


def notes(experiment, results: Results) -> list[str]:
  """What the figures mean, in sentences."""
  settings = experiment["settings"]
  trainings = [r for r in results.values() if r["part"] == "train"]
  data, origins = {}, {}
  for trained in trainings:
    if "left_out" not in trained["studies"]:
      data.setdefault(f"{trained['dataset']}: {trained['data']}")
    origins.setdefault(trained["origin"], []).append(trained["model"])
  count = settings["num_points"]
  asked = (
    "all training and all test examples"
    if count is None
    else f"up to {count:,} training and as many test examples, drawn once"
  )
  fits = sorted({r["num_fit"] for r in results.values() if "num_fit" in r})
  shown_fits = ", ".join(str(number) for number in fits) or "none"
  return [
    "Published figures are those of Song, Shokri and Mittal (CCS 2019), as"
    " printed; nothing of them was measured here. Their networks, lengths and"
    " training sets are the paper's, ours those of the table of trainings: a"
    " factor below 1, fewer examples or a narrower network is no reproduction."
    " Where a study was published for another data set, its rows say which.",
    *data,
    f"Members and non-members: {asked}; test examples that occur among the"
    " training examples are left out. Radii and targeted attacks:"
    f" {_count(settings['num_swept'])}.",
    "I_B, I_A, I_V: the confidence in the true class (float32 softmax) on the"
    " input itself, on its adversarial example (l_inf PGD, 20 steps of 2.5"
    " radius / 20 from the input), and of the verified worst case within the"
    " radius, above a threshold. Inference accuracy is balanced: 50 is a guess,"
    " and advantage is twice what is above it. As published, the threshold is"
    " the best one for the very points it is judged on: an upper estimate of"
    " what an attacker achieves, with an interval (Dvoretzky, Kiefer and"
    " Wolfowitz) for the best threshold. A held-out threshold is learnt on one"
    " half and judged on the other, with Clopper-Pearson intervals. All are 95"
    " %, over the choice of points; one training each, so that what another"
    " seed would change is not covered.",
    "I_V uses the bounds that a model was trained on: intervals with outward"
    " rounding for IBP and DiffAI, the exact dual for dual training, on"
    f" {settings['num_dual']} examples of each kind at this scale, and not run"
    " where that is 0: its cost grows with the square of the width. Published"
    " figures of dual training rest on random projections: estimates.",
    "Gap: who is classified correctly is called a member. Margin: log p_y minus"
    " log of the sum of the others, in float64, where the confidence of float32"
    " is exactly 1 for many.",
    "Findings: the difference against twice its standard error, point by point"
    " for I_A and I_B, or I_V and I_A, of one model, else as if the two figures"
    " were independent;"
    " oracle thresholds, as published; one training each. 'If it fits':"
    f" accuracy of at least {100 * findings_lib.FITS:.0f} % on attacked (or"
    " verified) members; otherwise the paper expects nothing.",
    "Table 7: thresholds and 200-20-2 networks were fitted to"
    f" {shown_fits} members and as many non-members of each class, 500 in the"
    " paper; all others are judged. One targeted attack for each wrong class.",
    "Figure 2: one training example of each class is left out at a time."
    " Batches are drawn anew, so that the confidence in kept examples changes,"
    " too: what both kinds have in common is no memory of the example.",
    "Temperature: logits are divided after the attack; accuracy stays the same."
    " Domain adaptation: weight and divisors were not published, they are those"
    " of ATDA as remembered. PixelDP: the score is the mean softmax over 20"
    " draws of its noise; its network here is that of the natural model beside"
    " it, not the published one.",
    "Without privacy there is no budget: none claimed, none known to hold. A"
    " proven budget bounds TPR - FPR of every attacker by (e^dp_epsilon - 1 + 2"
    " dp_delta) / (e^dp_epsilon + 1) where one example is added or removed;"
    " training sets of one size differ by a replaced example, hence by twice"
    " dp_epsilon, and that is what measurements are held against. These"
    " strategies are no tight audit: staying below proves nothing. Choosing the"
    " settings of private models, and what is shown here of their members, is"
    " not charged to the budget.",
    "What is inferred is membership only as far as test examples are of the"
    " same kind as training examples. Where they are not (uci_har: other"
    " people than those of the training set, as in the paper), a score may tell"
    " the kinds apart; then no budget bounds it, and even a model that was"
    " trained on neither may show an advantage.",
    *(
      f"{len(names)} of {len(trainings)} models: {origin}."
      for origin, names in origins.items()
    ),
    *_remarks(results),
  ]


def _count(count: int | None) -> str:
  return "all of them" if count is None else f"up to {count:,} of each"


def _remarks(results: Results) -> list[str]:
  found = []
  for trained in findings_lib.in_study(results, "main"):
    published = membership_page.published_of(trained)
    if published and published.remark:
      name = f"{trained['dataset']}, {trained['label']}"
      found.append(f"{name}: {published.remark}")
  return found
