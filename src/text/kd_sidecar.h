#pragma once

#include <cstdint>

#include "base/file.h"
#include "text/teacher_file.h"

namespace hearth::text {

/// True if a file begins as a sidecar of Surogate (surogate distill-capture).
bool is_kd_sidecar(const fs::path& path);

/// Sidecar SHARD.kd of a token shard of Surogate: the most likely next tokens after each token of the shard.
/// A header of 1024 bytes ("KD.LOGP\n"; i32 version, k, number of tokens, size of the vocabulary, dtype; at
/// 64 the 16 characters of the shard's tokenize hash), then ids u32 [tokens, k] and log-probabilities f16
/// [tokens, k]. An entry is the position of a token in the shard.
class KdSidecar : public TeacherEntries {
 public:
  /// Opens a sidecar and its shard, and reads both once. Throws a UserError if the sidecar is incomplete or
  /// damaged, belongs to another shard, or has an id of at least `vocab_size`.
  KdSidecar(const fs::path& path, const fs::path& shard, int64_t vocab_size);
  void read(int64_t entry, int32_t* ids, float* logps) const override;
  int64_t num_tokens() const { return num_tokens_; }
  /// Returns the number of tokens with an entry; the teacher did not evaluate those at the end.
  int64_t num_entries() const { return num_entries_; }
  /// True if the shard has this token at `position`.
  bool has_token(int64_t position, int32_t id) const;

 private:
  void check_entries(const fs::path& path, int64_t vocab_size);

  MappedFile file_, shard_;
  int64_t num_tokens_ = 0, num_entries_ = 0;
  size_t k_ = 0;
};

/// Returns the path of the token shard of a sidecar: without ".kd".
fs::path shard_of_sidecar(const fs::path& path);
/// Returns a header with the number of tokens per entry, the size of the vocabulary and the number of tokens
/// of a sidecar. Throws a UserError if the header is damaged.
TeacherHeader read_kd_header(const fs::path& path);

}  // namespace hearth::text
