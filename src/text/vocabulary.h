#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hearth::text {

/// Bidirectional map of tokens and ids. The largest id is limited to kMaxId, which bounds the memory that a
/// file can request.
class Vocabulary {
 public:
  static constexpr int64_t kMaxId = (int64_t{1} << 22) - 1;

  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  /// Adds a token. Throws a UserError naming `where` if the id is out of range, or the id or token is already
  /// used.
  void add(std::string_view token, int64_t id, std::string_view where);
  /// Adds a token that encoding never produces; its id can only be decoded.
  void add_hidden(std::string_view token, int64_t id, std::string_view where);

  /// Throws a UserError naming `where` if a token is so long that searching for it at each offset of a text
  /// would be too slow.
  void check_lengths(std::string_view where) const;

  /// Returns the id of a token; nothing if it is hidden or not in the vocabulary.
  std::optional<int32_t> find(std::string_view token) const;
  /// Returns the token of an id; empty if the id has none.
  std::string_view token(int32_t id) const;
  /// True for ids added by add_hidden().
  bool hidden(int32_t id) const { return hidden_.contains(id); }
  /// Returns the largest id plus 1.
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const;
  };
  void claim(std::string_view token, int64_t id, std::string_view where);

  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::unordered_map<int32_t, std::string> hidden_;
  std::vector<std::string_view> tokens_;
};

}  // namespace hearth::text
