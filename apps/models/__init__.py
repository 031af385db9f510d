"""Models by name: ``build_model("resnet20", num_classes=10)``; ``MODELS`` lists them.

Imported as ``apps.models`` or, with apps/ on the path, as ``models``. Training is in train.py.
"""

from .language import LanguageModel
from .mobilenet import MobileNet
from .pretrained import load_weights
from .registry import MODELS, build_model, find_model, image_size, model
from .resnet import (
    BasicBlock,
    Bottleneck,
    ImageNetResNet18,
    ImageNetResNet34,
    ImageNetResNet50,
    ResNet,
    ResNet18,
    ResNet20,
    ResNet32,
    ResNet34,
    ResNet50,
    ResNet56,
    ResNet110,
)
from .small import ConvBN, LeNet5, MLPResNet, ResidualBlock, ResNet9
from .vgg import VGG, VGG11

__all__ = [
    "MODELS",
    "build_model",
    "find_model",
    "image_size",
    "load_weights",
    "model",
    "ConvBN",
    "LanguageModel",
    "LeNet5",
    "MLPResNet",
    "MobileNet",
    "VGG",
    "VGG11",
    "ResNet9",
    "ResidualBlock",
    "BasicBlock",
    "Bottleneck",
    "ResNet",
    "ResNet18",
    "ResNet20",
    "ResNet32",
    "ResNet34",
    "ResNet50",
    "ResNet56",
    "ResNet110",
    "ImageNetResNet18",
    "ImageNetResNet34",
    "ImageNetResNet50",
]
