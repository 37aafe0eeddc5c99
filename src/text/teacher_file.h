#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/file.h"

namespace hearth::text {

/// Header of a teacher file, with digests of the teacher, the tokenizer and the data.
struct TeacherHeader {
  uint64_t magic = 0x3130'444B'5448'5248;  ///< "HRHTKD01"
  uint32_t top_k = 0;                      ///< number of tokens per entry
  uint32_t vocab_size = 0;                 ///< number of tokens of the tokenizer
  uint64_t num_entries = 0;                ///< number of trained tokens of all rows
  uint64_t context = 0;                    ///< max tokens of a row
  uint64_t tokenizer = 0;                  ///< digest of the tokenizer's vocabulary
  uint64_t rows = 0;                       ///< digest of the rows of tokens, in their order
  uint64_t teacher = 0;                    ///< digest of the teacher's weights
  uint64_t digest = 0;                     ///< XXH3 of the members above
  bool operator==(const TeacherHeader&) const = default;
};
/// Returns the header with its digest set.
TeacherHeader sealed(TeacherHeader header);
/// Reads and verifies a header. Throws a UserError if the file is not a teacher file.
TeacherHeader read_teacher_header(const fs::path& path);

/// Source of a teacher's entries, the most likely next tokens after each token of a data set.
class TeacherEntries {
 public:
  virtual ~TeacherEntries() = default;
  /// Writes the ids, ascending, and the log-probabilities of an entry.
  virtual void read(int64_t entry, int32_t* ids, float* logps) const = 0;
};

/// A teacher's most likely tokens for each trained token of a data set: a header, then blocks of entries,
/// each with a checksum. An entry has top_k token ids (u32, ascending) and their log-probabilities (f16).
class TeacherFile : public TeacherEntries {
 public:
  /// Opens and verifies a file, reading all of it once. Throws a UserError if it is incomplete or damaged.
  explicit TeacherFile(const fs::path& path);
  const TeacherHeader& header() const { return header_; }
  void read(int64_t entry, int32_t* ids, float* logps) const override;

 private:
  MappedFile file_;
  TeacherHeader header_;
};

/// Writes a teacher file in order. Continues an incomplete file with an equal header after its last complete
/// block.
class TeacherWriter {
 public:
  /// Creates the file and its folder if needed. Throws a UserError if the file has another header.
  TeacherWriter(fs::path path, const TeacherHeader& header);
  const TeacherHeader& header() const { return header_; }
  /// Returns the number of entries, including those of an earlier, incomplete capture.
  int64_t num_entries() const { return num_entries_; }
  /// Adds an entry; ids are ascending. The last entry completes the file.
  void add(std::span<const int32_t> ids, std::span<const float> logps);

 private:
  void write_block();

  TeacherHeader header_;
  int64_t num_entries_ = 0;
  std::vector<uint32_t> ids_;
  std::vector<uint16_t> logps_;
  FileWriter file_;
};

}  // namespace hearth::text
