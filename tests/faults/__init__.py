"""Kills, full and broken disks, races: what every verb leaves behind."""
