"""Black boxes: functions of a vector that can be evaluated and not differentiated."""
