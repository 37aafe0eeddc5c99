#include "distributed/transport.h"

#include <fmt/format.h>

namespace hearth::distributed {

CommError CommError::missing(int rank, const std::string& whereabouts, int waiting, double seconds) {
  return {rank,
          fmt::format("rank {} stopped in {}, rank {} waited {:.1f} s", rank, whereabouts, waiting, seconds)};
}

std::string to_string(const char* collective, const Place& place) {
  return fmt::format("{} {} of step {}", collective, place.index, place.step);
}

}  // namespace hearth::distributed
