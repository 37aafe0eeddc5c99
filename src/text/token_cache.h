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

/// A token in a cache file: bits 0..30 are the id; bit 31 is set if the token counts in the loss.
struct PackedToken {
  uint32_t bits = 0;

  static PackedToken of(int32_t id, bool trained) {
    return {static_cast<uint32_t>(id) | (trained ? 0x8000'0000U : 0U)};
  }
  int32_t id() const { return static_cast<int32_t>(bits & 0x7FFF'FFFFU); }
  bool trained() const { return (bits & 0x8000'0000U) != 0; }
};

/// Returns the key of a token cache: XXH3 of data, tokenizer files and all other settings that determine the
/// tokens (SampleReader::fingerprint).
uint64_t cache_key(std::span<const std::byte> data, std::span<const std::byte> tokenizer,
                   std::string_view fingerprint);

/// Counts of records in a data file, which cannot be derived from its tokens.
struct RecordCounts {
  int64_t left_out = 0;           ///< number of records that could not be used
  int64_t without_reasoning = 0;  ///< number of samples whose reasoning the chat template does not print
  bool operator==(const RecordCounts&) const = default;
};

/// Receives the samples of a cache that is being built, in order.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  /// Adds a sample or a piece of one. `continues`: true if the next call continues the same sample. `line`:
  /// line in the data file at which the sample starts.
  virtual void add(const Tokens& tokens, int64_t line, bool continues) = 0;
  /// Sets the record counts that are stored with the samples.
  virtual void note(const RecordCounts& notes) = 0;
};

/// Tokenized samples in a memory-mapped file. Layout: all tokens, the start of each sample in them, the line
/// of each sample in the data file, the record counts, and a footer with sizes and an XXH3 of everything
/// before it.
class TokenCache {
 public:
  /// Opens and verifies a cache, reading all of it once. Returns nothing if the file is missing, has another
  /// key, or is damaged or truncated; the caller then rebuilds it.
  static std::optional<TokenCache> open(const fs::path& path, uint64_t key);
  /// Builds a cache file: produce(sink) must add all samples to the sink. Replaces an existing file
  /// atomically; creates its folder. Needs 16 bytes of memory per sample.
  static TokenCache build(const fs::path& path, uint64_t key, FunctionRef<void(TokenSink&)> produce);
  /// Opens a cache, or builds it if open() returns nothing.
  static TokenCache open_or_build(const fs::path& path, uint64_t key, FunctionRef<void(TokenSink&)> produce);

  int64_t num_samples() const { return std::ssize(lines_); }
  const RecordCounts& notes() const { return notes_; }
  int64_t num_tokens() const { return std::ssize(tokens_); }
  /// Returns the tokens of a sample; valid as long as this object.
  std::span<const PackedToken> sample(int64_t index) const;
  /// Line of the sample in the data file, counted from 1.
  int64_t line(int64_t index) const { return lines_[static_cast<size_t>(index)]; }
  /// Returns the number of tokens of each sample.
  std::vector<int64_t> lengths() const;

 private:
  TokenCache() = default;

  MappedFile file_;
  std::span<const PackedToken> tokens_;
  /// Start of each sample in tokens_; the last entry is the number of tokens.
  std::span<const uint64_t> starts_;
  std::span<const int64_t> lines_;
  RecordCounts notes_;
};

}  // namespace hearth::text
