"""Croissant 1.1 metadata of a release with the RAI vocabulary (MLCommons), made from the certificate alone."""

import json
from collections.abc import Mapping
from typing import Any, Final

from privmix.certificate.about import about_of
from privmix.mechanisms.plan import Unit, relation_of, unit_of_stored
from privmix.rounding import exact, rounded_up

CROISSANT_FILE: Final = "croissant.json"
_SHARDS: Final = "shards"
_USE: Final = ("Statistics of a table", "Training and testing of classifiers")
_TYPES: Final = {
    # The one that readers of Croissant know.
    ".parquet": "application/x-parquet",
    ".json": "application/json",
    ".safetensors": "application/octet-stream",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".csv": "text/csv",
}
_ROWS: Final[dict[str, Any]] = {
    "@type": "cr:FileSet",
    "@id": _SHARDS,
    "name": _SHARDS,
    "description": "All rows, in the order of the files' names.",
    "encodingFormat": _TYPES[".parquet"],
    "includes": "data/train-*.parquet",
}
# Terms of Croissant's own vocabulary, under the same names here.
_TERMS: Final = (
    "arrayShape citeAs column containedIn equivalentProperty extract field fileObject fileProperty fileSet format "
    "includes isArray isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace "
    "samplingRate separator source subField transform"
)
_OTHERS: Final[dict[str, Any]] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
}
_CONTEXT: Final[dict[str, Any]] = dict(sorted({**_OTHERS, **{term: f"cr:{term}" for term in _TERMS.split()}}.items()))


def croissant(
    certificate: Mapping[str, Any], certificate_sha256: str, *, mixes: bool = True, arrays: Mapping[str, str] = {}
) -> bytes:
    """Return the metadata as the bytes of ``croissant.json``.

    Formal guarantees:
        * a function of its arguments, which are public: anyone who has the certificate can make it again and compare;
        * it names every certified file with its SHA-256, and the certificate with that of its own bytes.
    """
    # mixes: rows are mixtures of records; earlier builds wrote so for all releases. arrays: what a file holds in
    # addition to rows, in words; earlier builds left them out.
    plan, guarantee = certificate["plan"], certificate["guarantee"]
    answers = {answer["question"]: answer for answer in certificate["assessment"]}
    files = [*certificate["files"], {"file": "certificate.json", "sha256": certificate_sha256}]
    about = about_of(certificate)
    content = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": about.get("title", f"privmix-release-{certificate['id']}"),
        "description": _description(plan, certificate["extractor"]["name"], about),
        **_said(about),
        "keywords": ["differential privacy", *(["mixup"] if mixes else [])],
        "version": "1.0.0",
        "isLiveDataset": False,
        "distribution": [*(_file(item, arrays.get(item["file"])) for item in files), _ROWS],
        "recordSet": [_rows(plan)],
        "rai:personalSensitiveInformation": [
            _privacy(guarantee, certificate["insecure_seed"], unit_of_stored(plan)),
            answers["Unit of privacy"]["does_not"],
        ],
        "rai:dataCollection": answers["Mechanism and noise"]["holds"],
        # The same sentences as in the certificate: a text of its own could contradict them.
        "rai:dataLimitations": [answers["Bias and utility"]["does_not"], *certificate["warnings"]],
        "rai:dataBiases": [answers["Bias and utility"]["unknown"]],
        "rai:dataUseCases": [f"{_USE[len(plan['classes']) > 1]}. A row is no record and must not be read as one."],
    }
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _said(about: Mapping[str, str]) -> dict[str, Any]:
    """Licence, creator and date as the owner gave them."""
    found: dict[str, Any] = {}
    if "licence" in about:
        found["license"] = about["licence"]
    if "owner" in about:
        contact = {"description": f"Contact: {about['contact']}"} if "contact" in about else {}
        found["creator"] = {"@type": "sc:Organization", "name": about["owner"], **contact}
    if "date" in about:
        found["datePublished"] = about["date"]
    return found


def _description(plan: Mapping[str, Any], extractor: str, about: Mapping[str, str]) -> str:
    known = (
        "Title, licence, creator, date and purpose are the owner's words."
        if about
        else "Licence, creator and date are not known to the program."
    )
    purpose = f" Purpose: {about['purpose']}" if "purpose" in about else ""
    labels = f" and {len(plan['classes'])} label values" if len(plan["classes"]) > 1 else ""
    return (
        f"A differentially private release of {plan['rows']} rows of {plan['dim']} `{extractor}` features{labels} "
        f"(design {plan['design']}), made by privmix. certificate.json states what "
        f"is guaranteed; `privmix verify` recomputes it. {known}{purpose}"
    )


def _privacy(guarantee: Mapping[str, Any], insecure_seed: bool, unit: Unit) -> str:
    if insecure_seed:
        return "Not protected: the noise came from a seed, and whoever guesses it can subtract the noise."
    bound = "infinite" if guarantee["epsilon"] is None else rounded_up(guarantee["epsilon"], 4)
    return (
        f"No raw record is in any file. Differential privacy: epsilon at most {bound} at delta "
        f"{exact(guarantee['delta'])}, adjacency {relation_of(guarantee['adjacency'], unit)}; see certificate.json."
    )


def _file(item: Mapping[str, Any], about: str | None) -> dict[str, Any]:
    name = str(item["file"])
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        **({} if about is None else {"description": about}),
        "contentUrl": name,
        "encodingFormat": _TYPES["." + name.rpartition(".")[2]],
        "sha256": item["sha256"],
    }


def _rows(plan: Mapping[str, Any]) -> dict[str, Any]:
    classes = ", ".join(plan["classes"])
    labels = f"Noisy mixed label values, one for each class, in this order: {classes}."
    columns = {
        "x": (plan["dim"], "Noisy mixed features."),
        "y": (len(plan["classes"]), labels if len(plan["classes"]) > 1 else "A constant."),
    }
    return {
        "@type": "cr:RecordSet",
        "@id": "rows",
        "name": "rows",
        "description": "Released rows: noisy averages of records, or samples of released moments; never records.",
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"rows/{column}",
                "name": column,
                "description": text,
                "dataType": "cr:Float32",
                "isArray": True,
                "arrayShape": f"{width}",
                "source": {"fileSet": {"@id": _SHARDS}, "extract": {"column": column}},
            }
            for column, (width, text) in columns.items()
        ],
    }
