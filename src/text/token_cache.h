#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/function_ref.h"
#include "text/chat.h"

namespace hearth::text {

/// A token as caches hold it: its id and, in the highest bit, whether the loss counts it.
struct PackedToken {
  uint32_t bits = 0;

  static PackedToken of(int32_t id, bool trained) {
    return {static_cast<uint32_t>(id) | (trained ? 0x8000'0000U : 0U)};
  }
  int32_t id() const { return static_cast<int32_t>(bits & 0x7FFF'FFFFU); }
  bool trained() const { return (bits & 0x8000'0000U) != 0; }
};

/// XXH3 over data, tokenizer files and everything else that tokens depend on (SampleReader::fingerprint).
uint64_t cache_key(std::span<const std::byte> data, std::span<const std::byte> tokenizer,
                   std::string_view fingerprint);

/// Counts of a data file that cannot be derived from its tokens.
struct RecordNotes {
  int64_t left_out = 0;           ///< records that could not be used
  int64_t without_reasoning = 0;  ///< samples whose reasoning the chat template does not print
  bool operator==(const RecordNotes&) const = default;
};

/// Takes the samples of a cache that is being built, one after the other.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  /// `continues`: the next call continues with the same sample. `line`: where it starts in the data file.
  virtual void add(const Tokens& tokens, int64_t line, bool continues) = 0;
  /// Stores counts of the data file with the samples.
  virtual void note(const RecordNotes& notes) = 0;
};

/// Tokenized samples in a memory-mapped file: all tokens, then where each sample starts, then its line in
/// the data file, then the counts, then a footer with sizes and an XXH3 of all of it.
class TokenCache {
 public:
  /// Nothing when there is no such file, when it belongs to another key, and when it is damaged or cut short:
  /// it is then to be built (again). Reads all of it once.
  static std::optional<TokenCache> open(const fs::path& path, uint64_t key);
  /// Has `produce` deliver the samples and replaces the file atomically; makes its folder. Needs memory for
  /// 16 bytes per sample.
  static TokenCache build(const fs::path& path, uint64_t key, FunctionRef<void(TokenSink&)> produce);
  static TokenCache open_or_build(const fs::path& path, uint64_t key, FunctionRef<void(TokenSink&)> produce);

  int64_t num_samples() const { return std::ssize(lines_); }
  const RecordNotes& notes() const { return notes_; }
  int64_t num_tokens() const { return std::ssize(tokens_); }
  std::span<const PackedToken> sample(int64_t index) const;
  /// Where the sample stands in the data file.
  int64_t line(int64_t index) const { return lines_[static_cast<size_t>(index)]; }
  std::vector<int64_t> lengths() const;

 private:
  TokenCache() = default;

  MappedFile file_;
  std::span<const PackedToken> tokens_;
  std::span<const uint64_t> starts_;  ///< one more than samples
  std::span<const int64_t> lines_;
  RecordNotes notes_;
};

}  // namespace hearth::text
