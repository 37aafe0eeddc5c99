#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

namespace hearth::data {

/// Returns the names of folders, files, keys and subsets that mean a split, the preferred one first. `split`:
/// "train", or "test" for the data that is held out to evaluate on, where val is preferred to test. UserError
/// for any other split.
std::span<const std::string_view> split_names(std::string_view split);

/// Returns the first name of a split for which exists(name) is true; nullopt if there is none.
template <typename Exists>
std::optional<std::string_view> find_split_name(std::string_view split, Exists exists) {
  const std::span<const std::string_view> names = split_names(split);
  const auto found = std::ranges::find_if(names, exists);
  return found == names.end() ? std::nullopt : std::optional(*found);
}

/// True if a text, such as "instances_val2017", contains the name of a split in any case. A text with "train"
/// in it, such as "trainval", means no held-out split.
bool contains_split_name(std::string_view text, std::string_view name);

}  // namespace hearth::data
