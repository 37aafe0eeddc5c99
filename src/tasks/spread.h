#pragma once

#include <cstdint>
#include <vector>

namespace hearth::tasks {

/// At most `count` of `size` images, ascending: one from each of as many equal stretches, since many datasets
/// lie sorted by class.
std::vector<int64_t> spread(int64_t count, int64_t size);

}  // namespace hearth::tasks
