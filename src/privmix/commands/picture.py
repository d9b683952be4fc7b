"""Show the classes of a release: images of their means, or the public texts nearest to them."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.commands.base import Command, function
from privmix.errors import InvalidInput, check_integer
from privmix.jobs.options import ModelFiles, Recorded
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.picturing import ClassPictures, ClassTexts
    from privmix.publication.dataset import HasDataset, ReleasedDataset


@dataclass(frozen=True, eq=False, repr=False)
class Picture(Recorded, ModelFiles, Command["ClassPictures | ClassTexts"]):
    """Show what the classes of a release look like.

    Draws class means as images, or lists the nearest `public_texts`. Reads no private data and spends no privacy;
    no image is a real record. Each image states which share of it is known, the rest being noise.

    Formal guarantees:
        * Post-processing: the release and what the user calls public are all that is read. No ledger is charged, as
          nothing more can be learnt of a record than from the release itself.

    Raises:
        InvalidInput: the release is of something else, or of features that lead back to no image; its noise is of no
            known size; or an option does not go with it.
        StorageError: something can't be read or written.

    Example:
        >>> picture("no-such-folder")
        Traceback (most recent call last):
        ...
        privmix.errors.StorageError: certificate: cannot read no-such-folder/certificate.json: No such file or directory
    """

    example = "privmix picture REL --figure classes.png"

    release: HasDataset | ReleasedDataset | str | Path = option(
        MISSING, "Folder of a release of images or texts.", in_python="Also a release.", argument=True
    )
    _: KW_ONLY
    figure: str | Path | None = option(None, "Figure to write: .png, .svg or .pdf.")
    public_texts: Any = option(
        None,
        "Public texts for a release of texts: .json, .csv or lines.",
        in_python="Also a list, or a mapping from names to texts.",
    )
    nearest: int = option(3, "Number of public texts shown per class.")
    seed: int = option(0, "Seed of the image search; reproducible on one machine.")
    steps: int = option(200, "Limit on search steps per image.")

    def run(self, progress: Progress) -> ClassPictures | ClassTexts:
        from privmix.features.spec import from_spec
        from privmix.jobs.picturing import centre_noise, class_images, near_texts, takes_texts
        from privmix.jobs.places import check_figure
        from privmix.learning.class_means import class_means
        from privmix.learning.inverse import InverseConfig
        from privmix.releases.series_chain import dataset_of

        self.check_record()
        place = None if self.figure is None else Path(self.figure)
        if place is None and self.record is not None and self.public_texts is None:
            place = Path(self.record) / "classes.png"
        check_figure(place)
        check_integer("seed", self.seed, low=0)
        dataset = dataset_of(self.release)
        if dataset.num_classes < 2:
            raise InvalidInput("classes of the release", dataset.num_classes, "at least 2 classes to compare")
        extractor = from_spec(dataset.extractor, self.features_model, arrays=dataset.extractor_arrays or None)
        found = class_means(dataset, centre_noise(dataset))
        if takes_texts(extractor, dataset.classes):
            if self.public_texts is None:
                allowed = "public texts, to compare with the classes of a release of texts"
                raise InvalidInput("public_texts", None, allowed)
            if place is not None:
                raise InvalidInput("figure", str(place), "no figure for a release of texts: its texts are printed")
            count = check_integer("nearest", self.nearest, low=1)
            return near_texts(dataset, extractor, found, self.public_texts, count)
        if self.public_texts is not None:
            raise InvalidInput("public_texts", "texts", f"no texts for a release of {extractor.name} features")
        config = InverseConfig(steps=check_integer("steps", self.steps, low=1))
        return class_images(dataset, extractor, found, config, self.seed, place, progress)


picture: Final = function(Picture)
