"""Models by name: ``build_model("resnet20", num_classes=10)``; ``MODELS`` lists them.

Imported as ``apps.models`` or, with apps/ on the path, as ``models``. Training is in train.py.
"""

from .language import LanguageModel
from .mobilenet import MobileNet
from .pretrained import load_weights
from .registry import MODELS, build_model, find_model, image_size, model
from .resnet import ResNet, ResNet18, ResNet20, ResNet50
from .small import ConvBN, LeNet5, MLPResNet, ResidualBlock, ResNet9
from .vgg import VGG11

__all__ = [
    "MODELS",
    "ConvBN",
    "LanguageModel",
    "LeNet5",
    "MLPResNet",
    "MobileNet",
    "ResNet",
    "ResNet9",
    "ResNet18",
    "ResNet20",
    "ResNet50",
    "ResidualBlock",
    "VGG11",
    "build_model",
    "find_model",
    "image_size",
    "load_weights",
    "model",
]
