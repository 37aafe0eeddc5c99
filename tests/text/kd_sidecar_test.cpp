#include "text/kd_sidecar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/dtype.h"
#include "base/error.h"
#include "temporary_folder.h"

namespace hearth::text {
namespace {

using testing::HasSubstr;

constexpr int32_t kTokens = 6, kVocab = 40;

/// A sidecar of six tokens with two ids each; the last token has no entry.
class KdSidecars : public testing::Test {
 protected:
  KdSidecars() {
    write_file_atomically(shard_, header("BIN.TOK\n", {2, 4, kTokens, kVocab}) + std::string(4 * kTokens, 0));
    sidecar_ = header("KD.LOGP\n", {1, 2, kTokens, kVocab, 0, 0}) + std::string(12 * kTokens, 0);
    for (int32_t i = 0; i + 1 < kTokens; ++i) {
      set_id(2 * i, 30 - i);  // most likely first
      set_id(2 * i + 1, i);
      set_logp(2 * i, -0.5);
      set_logp(2 * i + 1, -1.25);
    }
  }
  static std::string header(const std::string& magic, std::vector<int32_t> fields) {
    std::string made = magic;
    made.append(reinterpret_cast<const char*>(fields.data()), 4 * fields.size());
    made.resize(1024);
    return made;
  }
  void set_id(int32_t at, int32_t id) { std::memcpy(sidecar_.data() + 1024 + 4 * at, &id, 4); }
  void set_logp(int32_t at, double logp) {
    store_element(DType::f16, reinterpret_cast<std::byte*>(sidecar_.data() + 1024 + 8 * kTokens), at, logp);
  }
  void set_field(int32_t index, int32_t value) { std::memcpy(sidecar_.data() + 4 * index, &value, 4); }
  KdSidecar open(int64_t vocab_size = kVocab) const {
    write_file_atomically(path_, sidecar_);
    return {path_, shard_of_sidecar(path_), vocab_size};
  }
  std::string fault(int64_t vocab_size = kVocab) const {
    try {
      open(vocab_size);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
  fs::path shard_ = folder_.path() / "train-000.bin", path_ = folder_.path() / "train-000.bin.kd";
  std::string sidecar_;
};

TEST_F(KdSidecars, AreReadByPosition) {
  const KdSidecar file = open();
  EXPECT_TRUE(is_kd_sidecar(path_));
  EXPECT_FALSE(is_kd_sidecar(shard_));
  EXPECT_EQ(read_kd_header(path_).top_k, 2U);
  EXPECT_EQ(file.num_tokens(), kTokens);
  EXPECT_EQ(file.num_entries(), kTokens - 1);
  int32_t ids[2];
  float logps[2];
  file.read(3, ids, logps);
  EXPECT_THAT(ids, testing::ElementsAre(3, 27));
  EXPECT_THAT(logps, testing::ElementsAre(-1.25F, -0.5F));
  EXPECT_TRUE(file.has_token(2, 0));
  EXPECT_FALSE(file.has_token(2, 1));
}

TEST_F(KdSidecars, DamagedOnesAreRefused) {
  EXPECT_EQ(fault(), "");
  EXPECT_THAT(fault(30), HasSubstr("the teacher lists token 30, but the student's tokenizer has 30 tokens"));
  const std::string valid = sidecar_;
  set_id(1, 30);
  EXPECT_THAT(fault(), HasSubstr("the entry of token 0 is damaged"));
  sidecar_ = valid;
  set_logp(4, 0.5);
  EXPECT_THAT(fault(), HasSubstr("the entry of token 2 is damaged"));
  sidecar_ = valid;
  set_id(4, -7);
  EXPECT_THAT(fault(), HasSubstr("the entry of token 2 is damaged"));
  for (const auto& [index, value] : {std::pair{3, 0}, {3, 1025}, {4, 0}, {4, -1}, {5, 1}}) {
    sidecar_ = valid;
    set_field(index, value);
    EXPECT_THAT(fault(), HasSubstr("the header is damaged")) << index;
  }
  for (const int32_t index : {3, 4}) {
    sidecar_ = valid;
    set_field(index, 1 + (index == 3 ? 2 : kTokens));
    EXPECT_THAT(fault(), HasSubstr("but its header requires")) << index;
  }
  sidecar_ = valid;
  set_field(2, 2);
  EXPECT_THAT(fault(), HasSubstr("version 2"));
  sidecar_ = valid.substr(0, valid.size() - 1);
  EXPECT_THAT(fault(), HasSubstr("bytes, but its header requires"));
  sidecar_ = valid.substr(0, 900);
  EXPECT_THAT(fault(), HasSubstr("not a sidecar"));
}

}  // namespace
}  // namespace hearth::text
