"""The report as one page that needs no other file, request or script."""

from __future__ import annotations

from tf_privrob.report import consistency
from tf_privrob.report import formats
from tf_privrob.report import metrics as metrics_lib
from tf_privrob.report import page_audits
from tf_privrob.report import page_cards
from tf_privrob.report import page_examples
from tf_privrob.report import page_membership
from tf_privrob.report import page_privacy
from tf_privrob.report import page_promises
from tf_privrob.report import page_robustness
from tf_privrob.report import page_run
from tf_privrob.report import promises
from tf_privrob.report import results as results_lib
from tf_privrob.report import style
from tf_privrob.report.markup import Html
from tf_privrob.report.markup import join
from tf_privrob.report.markup import safe
from tf_privrob.report.markup import section
from tf_privrob.report.markup import tag

# The browser itself refuses scripts and requests, whatever a file contained.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_LINKS = (
  ("promises", "Figures"),
  ("may-promise", "Promises"),
  ("privacy", "Privacy"),
  ("audits", "Audits"),
  ("membership", "Membership"),
  ("attacks", "Under attack"),
  ("certified", "Certified"),
  ("violations", "Violations"),
  ("examples", "Examples"),
  ("checks", "Checks"),
  ("training", "Training"),
  ("settings", "Settings"),
  ("reproduce", "Reproduce"),
)


def render(
  results: results_lib.Results, checks: tuple[consistency.Check, ...]
) -> str:
  """Returns the whole page."""
  title = results.title
  evaluate = page_run.command(results, "evaluate")
  body = join(
    [
      _header(results, title),
      tag(
        "main",
        _problems(results),
        _alarms(checks),
        _promises(results),
        page_promises.promises_section(promises.find(results, checks)),
        page_privacy.privacy_section(results, page_run.train_command(results)),
        page_audits.audits_section(results, page_run.command(results, "audit")),
        page_membership.membership_section(
          results, page_run.command(results, "infer")
        ),
        page_robustness.attack_section(results, evaluate),
        page_robustness.certified_section(results, evaluate),
        page_audits.certificates_section(
          results, page_run.command(results, "audit_certificates")
        ),
        page_examples.examples_section(results, evaluate),
        page_run.checks_section(checks),
        page_run.training_section(results),
        page_run.settings_section(results),
        page_run.reproduce_section(results),
      ),
      _footer(results),
    ],
    "\n",
  )
  return document(f"{title} \u00b7 tf_privrob report", body)


def document(title: str, body: Html) -> str:
  """A whole page around `body`: policy, style, no other file."""
  return (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<meta name="color-scheme" content="light dark">\n'
    f"<title>{safe(title)}</title>\n"
    '<link rel="icon" href="data:,">\n'
    f"<style>{style.CSS}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
  )


def _header(results: results_lib.Results, title: str) -> Html:
  links = (tag("a", text, href=f"#{anchor}") for anchor, text in _LINKS)
  return tag(
    "header",
    tag("p", "tf_privrob \u00b7 report card", css="eyebrow"),
    tag("h1", title),
    tag("p", _lede(results), css="lede"),
    tag("nav", *links, aria_label="Parts of this page"),
  )


def _lede(results: results_lib.Results) -> str:
  """One sentence on what was trained, from whatever is known."""
  number = metrics_lib.as_number
  if not results.config:
    return "This folder has no configuration: nothing was trained in it yet."
  network = f"Network {results.network}"
  parameters = number(results.run.get("parameters"))
  if parameters is not None:
    network += f" with {parameters:,} parameters"
  trained = ""
  examples = number(results.section("dataset").get("num_train"))
  if examples is not None:
    trained += f", trained on {examples:,} examples"
  seconds = number(results.run.get("train_seconds"))
  if seconds is not None:
    trained += f" in {formats.duration(seconds)}"
  if results.run.get("device"):
    trained += f" on {results.run['device']}"
  created = results.run.get("created")
  when = f" {formats.moment(str(created))}." if created else ""
  return f"{network}{trained}.{when}"


def _problems(results: results_lib.Results) -> Html:
  """Files that exist but could not be read."""
  if not results.problems:
    return Html("")
  return tag(
    "div",
    tag("p", tag("strong", "Some files of this run could not be read.")),
    tag("ul", *(tag("li", problem) for problem in results.problems)),
    css="banner warn",
    role="alert",
  )


def _alarms(checks: tuple[consistency.Check, ...]) -> Html:
  """What a reader must not miss, before any figure."""
  banners = []
  for status, text in (
    (consistency.FAIL, "A guarantee of this model is violated."),
    (consistency.WARN, "Some figures of this run need a second look."),
  ):
    found = [check for check in checks if check.status == status]
    if found:
      items = (
        tag(
          "li",
          "Does not hold: ",
          tag("strong", f"{check.title}."),
          f" {check.detail}",
        )
        for check in found
      )
      more = tag("a", "All checks", href="#checks")
      banners.append(
        tag(
          "div",
          tag("p", tag("strong", text), " ", more),
          tag("ul", *items),
          css=f"banner {status}",
          role="alert",
        )
      )
  return join(banners)


def _promises(results: results_lib.Results) -> Html:
  return section(
    "promises",
    "The figures",
    tag(
      "div",
      page_cards.clean_card(results),
      page_cards.attacked_card(results),
      page_cards.certified_card(results),
      page_privacy.card(results),
      css="cards",
    ),
  )


def _footer(results: results_lib.Results) -> Html:
  version = results.section("versions").get("tf_privrob")
  return tag(
    "footer",
    tag(
      "p",
      f"Written by tf_privrob {version or ''} from {results.run_dir}."
      " Sizes and radii of the first row are chosen by fixed rules that do not"
      " look at the results: the median attack size, and the radius nearest to"
      " smoothing_stddev.",
    ),
  )
