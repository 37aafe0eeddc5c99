#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

namespace hearth::data {

/// Returns the names that folders, files, keys or subsets of a split may have, in order of preference.
/// `split`: "train", or "test" for the held-out data of evaluations, whose names include "val" before "test".
/// Throws a UserError for any other split.
std::span<const std::string_view> split_names(std::string_view split);

/// Returns the most preferred name of a split for which exists(name) is true; nullopt if there is none.
template <typename Exists>
std::optional<std::string_view> find_split_name(std::string_view split, Exists exists) {
  const std::span<const std::string_view> names = split_names(split);
  const auto found = std::ranges::find_if(names, exists);
  return found == names.end() ? std::nullopt : std::optional(*found);
}

/// True if `text`, such as "instances_val2017", contains the split name `name` in upper or lower case. A text
/// that contains "train", such as "trainval", belongs to the training split: the result is false for names of
/// the test split.
bool contains_split_name(std::string_view text, std::string_view name);

}  // namespace hearth::data
