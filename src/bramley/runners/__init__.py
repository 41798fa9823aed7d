"""The RunnerPool controller: keeps Pods, rolls images, stages them on hosts, and scales pools."""
