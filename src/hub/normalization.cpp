#include "hub/normalization.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"

namespace hearth::hub {
namespace {

constexpr int64_t kMostBytes = 16 << 20;
/// A quarter of a gray value of 8 bits: what people round to.
constexpr double kClose = 0.001;

/// The numbers under a key, one for each channel; none where it holds anything else.
std::vector<double> numbers_of(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || !found->is_array()) return {};
  const auto is_number = [](const nlohmann::json& value) { return value.is_number(); };
  return std::ranges::all_of(*found, is_number) ? found->get<std::vector<double>>() : std::vector<double>{};
}

bool agree(const std::vector<float>& ours, const std::vector<double>& theirs) {
  for (size_t c = 0; c < theirs.size(); ++c) {
    const float value = ours[std::min(c, ours.size() - 1)];
    if (!(std::abs(static_cast<double>(value) - theirs[c]) <= kClose)) return false;
  }
  return ours.size() <= theirs.size();
}

}  // namespace

std::string normalization_note(const fs::path& weights, const data::PixelOptions& pixels) {
  const fs::path file = (fs::is_directory(weights) ? weights : weights.parent_path()) / "config.json";
  if (!fs::is_regular_file(file)) return "";
  const auto top = parse_json_object<nlohmann::json>(read_file(file, kMostBytes), file.string());
  const auto nested = top.find("pretrained_cfg");
  const nlohmann::json& config = nested != top.end() && nested->is_object() ? *nested : top;
  const std::vector<double> mean = numbers_of(config, "mean"), std = numbers_of(config, "std");
  if (mean.empty() || std.empty() || (agree(pixels.mean, mean) && agree(pixels.std, std))) return "";
  return fmt::format(
      "init: {} says that pictures were normalized by another mean and std: try 'data.mean=[{}]' "
      "'data.std=[{}]'",
      file.string(), fmt::join(mean, ","), fmt::join(std, ","));
}

}  // namespace hearth::hub
