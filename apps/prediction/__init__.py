"""The parts of apps/predict.py: a classifier that prepares pictures, and a web page to draw on."""
