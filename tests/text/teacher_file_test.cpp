#include "text/teacher_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "temporary_folder.h"

namespace hearth::text {
namespace {

using testing::HasSubstr;

constexpr int64_t kEntries = 2500;  // two blocks and a part of one

class TeacherFiles : public testing::Test {
 protected:
  static TeacherHeader header(uint64_t teacher = 4) {
    return sealed({.top_k = 3, .vocab_size = 40, .num_entries = kEntries, .context = 8, .teacher = teacher});
  }
  static std::vector<int32_t> ids(int64_t entry) {
    const auto first = static_cast<int32_t>(entry % 30);
    return {first, first + 2, first + 5};
  }
  static std::vector<float> logps(int64_t entry) {
    const float step = static_cast<float>(entry % 16) / 16;
    return {-0.5F - step, -1.25F, -7};
  }
  /// Adds entries up to the number `end`; returns the number of entries that the file had.
  int64_t write(int64_t end = kEntries, uint64_t teacher = 4) const {
    TeacherWriter writer(path_, header(teacher));
    const int64_t had = writer.num_entries();
    for (int64_t i = had; i < end; ++i) writer.add(ids(i), logps(i));
    return had;
  }
  std::string fault() const {
    try {
      TeacherFile file(path_);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  void change(size_t at) const {
    std::string bytes = read_file(path_);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_file_atomically(path_, bytes);
  }

  TemporaryFolder folder_;
  fs::path path_ = folder_.path() / "tokens" / "a.teacher";
};

TEST_F(TeacherFiles, GivesWhatWasAdded) {
  EXPECT_EQ(write(), 0);
  const TeacherFile file(path_);
  EXPECT_EQ(file.header(), header());
  EXPECT_EQ(read_teacher_header(path_), header());
  for (const int64_t i : {int64_t{0}, int64_t{1023}, int64_t{1024}, kEntries - 1}) {
    std::vector<int32_t> got_ids(3);
    std::vector<float> got_logps(3);
    file.read(i, got_ids.data(), got_logps.data());
    EXPECT_EQ(got_ids, ids(i)) << i;
    EXPECT_EQ(got_logps, logps(i)) << i;
  }
  EXPECT_EQ(fs::file_size(path_), 64 + kEntries * 3 * 6 + 3 * 8);
}

TEST_F(TeacherFiles, AnInterruptedFileIsContinuedWithTheSameBytes) {
  write();
  const std::string whole = read_file(path_);
  fs::remove(path_);
  EXPECT_EQ(write(1500), 0);
  EXPECT_THAT(fault(), HasSubstr("has entries for 1024 of 2500 tokens"));
  EXPECT_EQ(write(), 1024);
  EXPECT_EQ(read_file(path_), whole);
  EXPECT_EQ(write(), kEntries);
  EXPECT_EQ(read_file(path_), whole);
  for (const uintmax_t size : {size_t{0}, size_t{64}, size_t{65}, whole.size() / 2, whole.size() - 1}) {
    fs::resize_file(path_, size);
    write();
    EXPECT_EQ(read_file(path_), whole) << size;
  }
}

TEST_F(TeacherFiles, RejectsDamageAndOtherFiles) {
  write();
  EXPECT_EQ(fault(), "");
  constexpr size_t kLogp = 64 + 1024 * 3 * 4 + 5;
  change(kLogp);
  EXPECT_THAT(fault(), HasSubstr("the block of tokens 0 to 1023 is damaged"));
  change(kLogp);
  change(20);
  EXPECT_THAT(fault(), HasSubstr("the header is damaged"));
  EXPECT_THROW(write(), UserError);
  write_file_atomically(path_, std::string(200, 'a'));
  EXPECT_THAT(fault(), HasSubstr("is not a teacher file; create one with hearth distill capture"));
  EXPECT_THROW(write(), UserError);
  EXPECT_EQ(read_file(path_), std::string(200, 'a'));
}

TEST_F(TeacherFiles, DoesNotContinueTheFileOfAnotherTeacher) {
  write();
  const std::string before = read_file(path_);
  EXPECT_THROW(write(kEntries, 5), UserError);
  EXPECT_EQ(read_file(path_), before);
}

TEST_F(TeacherFiles, RejectsIdsThatAreNotAscending) {
  {
    TeacherWriter writer(path_, sealed({.top_k = 2, .vocab_size = 9, .num_entries = 1}));
    writer.add(std::vector<int32_t>{3, 3}, std::vector<float>{-1, -1});
  }
  EXPECT_THAT(fault(), HasSubstr("damaged"));
  fs::remove(path_);
  {
    TeacherWriter writer(path_, sealed({.top_k = 2, .vocab_size = 9, .num_entries = 1}));
    writer.add(std::vector<int32_t>{3, 9}, std::vector<float>{-1, -1});
  }
  EXPECT_THAT(fault(), HasSubstr("damaged"));
}

}  // namespace
}  // namespace hearth::text
