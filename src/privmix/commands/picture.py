"""What the classes of a release look like: images of their means, or the public texts nearest to them."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privmix.commands.base import Command, function
from privmix.errors import InvalidInput, check_integer
from privmix.jobs.options import ModelFiles, Recorded
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.picturing import ClassPictures, ClassTexts
    from privmix.publication import ReleasedDataset
    from privmix.publication.dataset import HasDataset


@dataclass(frozen=True, eq=False, repr=False)
class Picture(Recorded, ModelFiles, Command["ClassPictures | ClassTexts"]):
    """Show what the classes of a release look like.

    As images of their means, or as the public texts nearest to them. It is made of the released numbers alone: no
    private data is read, no privacy is spent, and no image is anybody's record. Pixels are put back into images. Of
    other features with gradients (scattering, patches, EfficientNet) an image is looked for whose features are those of
    the class mean, no nearer than the noise lets the mean be known. Beside each stands how sure it is: the share that
    is known of what sets the class apart from the others, the rest being noise; where that is little, nothing can be
    seen, and the images show what all classes have in common.

    A release of texts needs `public_texts`: privmix picture REL --public-texts sentences.txt --record RUN

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
        privmix.errors.StorageError: certificate: can't read no-such-folder/certificate.json: No such file or directory
    """

    example = "privmix picture REL --figure classes.png"

    release: HasDataset | ReleasedDataset | str | Path = option(
        MISSING, "A release of images or texts, or its folder.", argument=True
    )
    _: KW_ONLY
    figure: str | Path | None = option(
        None, "Draw the images here (.png, .svg or .pdf). With `record` they are drawn there: classes.png."
    )
    public_texts: Any = option(
        None,
        "Of a release of texts: public texts to compare its classes with. JSON (.json), CSV with a column text or "
        "description (.csv), or a text a line; in Python also a list of texts, or a mapping from names to texts.",
    )
    nearest: int = option(3, "Public texts of a class that are shown.")
    seed: int = option(0, "Seed of the search; the same one makes the same pictures on one machine.")
    steps: int = option(200, "Steps of the search for an image, at most.")

    def run(self, progress: Progress) -> ClassPictures | ClassTexts:
        """Draw."""
        from privmix.features import from_spec
        from privmix.jobs.picturing import centre_noise, class_images, near_texts, takes_texts
        from privmix.jobs.places import check_figure
        from privmix.learning.class_means import class_means
        from privmix.learning.inverse import InverseConfig
        from privmix.releases.at_hand import dataset_of

        self.check_record()
        place = None if self.figure is None else Path(self.figure)
        if place is None and self.record is not None and self.public_texts is None:
            place = Path(self.record) / "classes.png"
        check_figure(place)
        check_integer("seed", self.seed, low=0)
        dataset = dataset_of(self.release)
        if dataset.num_classes < 2:
            raise InvalidInput("classes of the release", dataset.num_classes, "at least 2: one is like nothing else")
        model, trust, arrays = self.features_model, self.trust_features_model, dataset.extractor_arrays or None
        extractor = from_spec(dataset.extractor, model, trust_model=trust, arrays=arrays)
        found = class_means(dataset, centre_noise(dataset))
        if takes_texts(extractor, dataset.classes):
            if self.public_texts is None:
                allowed = "public texts to compare the classes of a release of texts with"
                raise InvalidInput("public_texts", None, allowed)
            if place is not None:
                raise InvalidInput("figure", str(place), "none of a release of texts: its texts are printed")
            count = check_integer("nearest", self.nearest, low=1)
            return near_texts(dataset, extractor, found, self.public_texts, count)
        if self.public_texts is not None:
            raise InvalidInput("public_texts", "texts", f"none beside a release of {extractor.name} features")
        config = InverseConfig(steps=check_integer("steps", self.steps, low=1))
        return class_images(dataset, extractor, found, config, self.seed, place, progress)


picture = function(Picture)
