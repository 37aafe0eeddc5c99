#include "data/split_names.h"

#include <array>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace hearth::data {
namespace {

constexpr auto kTrainNames = std::to_array<std::string_view>({"train", "training"});
constexpr auto kHeldOutNames =
    std::to_array<std::string_view>({"val", "valid", "validation", "dev", "test", "testing"});

}  // namespace

std::span<const std::string_view> split_names(std::string_view split) {
  if (split == "train") return kTrainNames;
  if (split == "test") return kHeldOutNames;
  user_error("expected the split train or test, got '{}'", split);
}

bool contains_split_name(std::string_view text, std::string_view name) {
  const std::string lower = lowered(text);
  const bool is_training = lower.find(kTrainNames[0]) != lower.npos;
  return lower.find(name) != lower.npos && is_training == name.starts_with(kTrainNames[0]);
}

}  // namespace hearth::data
