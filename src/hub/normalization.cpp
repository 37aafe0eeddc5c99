#include "hub/normalization.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "base/run_files.h"

namespace hearth::hub {
namespace {

constexpr int64_t kMaxBytes = 16 << 20;
/// Tolerance of comparisons: a quarter of an 8-bit gray level, because published values are rounded.
constexpr float kClose = 0.001F;

/// Returns the list of numbers under a key, one per channel; empty if the value is not such a list.
std::vector<float> numbers_of(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || !found->is_array()) return {};
  const auto is_number = [](const nlohmann::json& value) { return value.is_number(); };
  return std::ranges::all_of(*found, is_number) ? found->get<std::vector<float>>() : std::vector<float>{};
}

/// True if the values of all channels are equal up to kClose; a single value applies to all channels.
bool are_close(const std::vector<float>& ours, const std::vector<float>& theirs) {
  for (size_t c = 0; c < std::max(ours.size(), theirs.size()); ++c)
    if (!(std::abs(ours[std::min(c, ours.size() - 1)] - theirs[std::min(c, theirs.size() - 1)]) <= kClose))
      return false;
  return true;
}

}  // namespace

bool agree(const Normalization& one, const Normalization& other) {
  return are_close(one.mean, other.mean) && are_close(one.std, other.std);
}

std::optional<Normalization> known_normalization(const fs::path& weights) {
  const fs::path file = (fs::is_directory(weights) ? weights : weights.parent_path()) / kModelConfig;
  if (!fs::is_regular_file(file)) return std::nullopt;
  const auto top = parse_json_object<nlohmann::json>(read_file(file, kMaxBytes), file.string());
  const auto nested = top.find("pretrained_cfg");
  const nlohmann::json& config = nested != top.end() && nested->is_object() ? *nested : top;
  Normalization found{.file = file, .mean = numbers_of(config, "mean"), .std = numbers_of(config, "std")};
  const auto is_usable = [](float value) { return std::isfinite(value) && value > 0; };
  if (found.mean.empty() || found.std.empty() || !std::ranges::all_of(found.std, is_usable))
    return std::nullopt;
  return found;
}

}  // namespace hearth::hub
