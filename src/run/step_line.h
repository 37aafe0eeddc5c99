#pragma once

#include <cstddef>

#include "run/trainer_events.h"

namespace hearth::run {

/// Writes a line about a step in the format of torchtitan, which benchmark scripts parse: rates have decimals
/// and no thousands separators; tps (ips for images), tflops and mfu (N/A if unknown) are adjacent. Writes at
/// most `size` characters including the line break. Returns the length of the full line, which may exceed
/// `size`.
size_t write_step_line(char* text, size_t size, const Progress& p);

}  // namespace hearth::run
