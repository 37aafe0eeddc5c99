#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hearth::text {

/// Tokens and their ids, both ways. The largest id is bounded, so a file cannot ask for a table of any size.
class Vocabulary {
 public:
  static constexpr int64_t kMaxId = (int64_t{1} << 22) - 1;

  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  /// UserError naming `where` when the id is out of range, or the id or the token is taken.
  void add(std::string_view token, int64_t id, std::string_view where);
  /// A token that text never becomes: only its id has a meaning.
  void add_hidden(std::string_view token, int64_t id, std::string_view where);

  /// UserError naming `where` for a token that is so long that to look for it everywhere takes long.
  void check_lengths(std::string_view where) const;

  std::optional<int32_t> find(std::string_view token) const;
  /// Empty for an id that has none.
  std::string_view token(int32_t id) const;
  bool hidden(int32_t id) const { return hidden_.contains(id); }
  /// One more than the largest id.
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
