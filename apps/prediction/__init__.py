"""What apps/predict.py is made of: a trained model with its preparation, and a page to draw on."""
