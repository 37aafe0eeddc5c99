#pragma once

#include <cstddef>

#include "run/trainer_events.h"

namespace hearth::run {

/// A step in one line of torchtitan's form, which programs that compare trainers read: rates have decimals,
/// no number a comma, and tps (ips: images), tflops and mfu, N/A where it is not known, stand together.
/// Writes at most `size` characters, the line break among them, and returns how many there are.
size_t write_step_line(char* text, size_t size, const Progress& p);

}  // namespace hearth::run
