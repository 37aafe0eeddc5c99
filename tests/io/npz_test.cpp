#include "io/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "limited_child.h"
#include "npz_writer.h"
#include "temporary_folder.h"

namespace hearth::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// What numpy.savez_compressed wrote: latents_2x3 f32 [2, 2, 3] of 0, 0.25, ...; half f16 [1.5, -2]; mask
/// i64 [3, -1]; flag, a single true.
constexpr std::string_view kByNumpy =
    "UEsDBC0AAAAIAAAAIQDN+MpX//////////8PABQAbGF0ZW50c18yeDMubnB5AQAQALAAAAAAAAAAaQAAAAAAAACb7BfqGxDJ"
    "yFDGUK2eklqcXKRupaBuk2airqOgnpZfVFKUmBefX5SSChJ3S8wpTgWKF2ckFqQC+RpGOgpAZKypo1CrQB7gYgCDBjsgYc/A"
    "4ADEDUC8AIgPAPEDIGZwYGAQAGIFIDZwAABQSwMELQAAAAgAAAAhALPBggz//////////wgAFABoYWxmLm5weQEAEACEAAAA"
    "AAAAAEgAAAAAAAAAm+wX6hsQychQxlCtnpJanFykbqWgbpNmpK6joJ6WX1RSlJgXn1+UkgoSd0vMKU4FihdnJBakAvkaRjqa"
    "Ogq1ChQALgY7hgMAUEsDBC0AAAAIAAAAIQBn3v9o//////////8IABQAbWFzay5ucHkBABAAkAAAAAAAAABKAAAAAAAAAJvs"
    "F+obEMnIUMZQrZ6SWpxcpG6loG6TaaGuo6Cell9UUpSYF59flJIKEndLzClOBYoXZyQWpAL5GkY6mjoKtQoUAC5mBgj4DwUA"
    "UEsDBC0AAAAIAAAAIQCCLfjT//////////8IABQAZmxhZy5ucHkBABAAgQAAAAAAAABDAAAAAAAAAJvsF+obEMnIUMZQrZ6S"
    "WpxcpG6loF6TZKiuo6Cell9UUpSYF59flJIKEndLzClOBYoXZyQWpAL5Gpo6CrUKFAEuRgBQSwECLQMtAAAACAAAACEAzfjK"
    "V2kAAACwAAAADwAAAAAAAAAAAAAAgAEAAAAAbGF0ZW50c18yeDMubnB5UEsBAi0DLQAAAAgAAAAhALPBggxIAAAAhAAAAAgA"
    "AAAAAAAAAAAAAIABqgAAAGhhbGYubnB5UEsBAi0DLQAAAAgAAAAhAGfe/2hKAAAAkAAAAAgAAAAAAAAAAAAAAIABLAEAAG1h"
    "c2subnB5UEsBAi0DLQAAAAgAAAAhAIIt+NNDAAAAgQAAAAgAAAAAAAAAAAAAAIABsAEAAGZsYWcubnB5UEsFBgAAAAAEAAQA"
    "3wAAAC0CAAAAAA==";

std::string decoded(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size() && text[i] != '='; ++i) {
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(text[i]));
    if (i % 4 != 0) bytes.push_back(static_cast<char>(bits >> (6 - 2 * (i % 4))));
  }
  return bytes;
}

class Npz : public testing::Test {
 protected:
  NpzFile open(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    return NpzFile(path_);
  }
  /// The message without the file's path, or what the last array holds, read with a limit of 1,000 bytes.
  std::string outcome(const std::string& bytes) const {
    try {
      const NpzFile file = open(bytes);
      std::string found;
      for (const std::string& name : file.names()) {
        const std::vector<std::byte> data = file.read(name, 1000);
        found.assign(reinterpret_cast<const char*>(data.data()), data.size());
      }
      return found;
    } catch (const UserError& error) {
      std::string text = error.what();
      const size_t at = text.find(path_.string());
      return at == text.npos ? "a sentence without the path: " + text
                             : text.erase(at, path_.string().size() + 2);
    }
  }
  std::string outcome_of(const std::string& npy, bool deflates = false) const {
    NpzWriter writer(deflates);
    writer.add("a", npy);
    return outcome(writer.bytes());
  }

  const TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "x.npz";
};

TEST_F(Npz, ReadsWhatNumpyWrites) {
  const NpzFile file = open(decoded(kByNumpy));
  EXPECT_THAT(file.names(), ElementsAre("latents_2x3", "half", "mask", "flag"));
  EXPECT_EQ(file.head("latents_2x3").shape, Shape({2, 2, 3}));
  EXPECT_EQ(file.head("half").dtype, DType::f16);
  EXPECT_EQ(file.head("flag").shape, Shape());
  EXPECT_EQ(file.read("flag", 1), std::vector<std::byte>{std::byte{1}});
  std::vector<float> latents(12);
  file.read_floats("latents_2x3", {2, 2, 3}, latents);
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(latents[i], 0.25F * static_cast<float>(i));
  std::array<float, 2> pair{};
  file.read_floats("half", {2}, pair);
  EXPECT_THAT(pair, ElementsAre(1.5F, -2));
  file.read_floats("mask", {2}, pair);
  EXPECT_THAT(pair, ElementsAre(3, -1));
  EXPECT_THROW(file.read_floats("mask", {1}, std::span(pair).first(1)), UserError);
  EXPECT_THROW(file.head("none"), UserError);
}

TEST_F(Npz, StoredAndDeflatedOfEachVersion) {
  for (const bool deflates : {false, true}) {
    for (const char version : {1, 2, 3})
      EXPECT_EQ(outcome_of(npy_file("|u1", "(4,)", "abcd", version), deflates), "abcd");
  }
  EXPECT_EQ(outcome_of(npy_file("|u1", "(2, 0)", "")), "");
  EXPECT_EQ(outcome_of(npy_file("|u1", "(2,)", "ab", 1, "True")), "ab") << "one axis has one order";
  NpzWriter writer;
  writer.add("first", npy_file("<i2", "(1,)", "xy"));
  writer.add("last", npy_file("|b1", "()", "\1"));
  EXPECT_EQ(outcome(writer.bytes()), "\1");
  EXPECT_THAT(open(writer.bytes()).names(), ElementsAre("first", "last"));
}

TEST_F(Npz, RefusesOtherArrays) {
  const std::string at = "the array 'a': ";
  EXPECT_EQ(outcome_of(npy_file("|O", "(1,)", "x")),
            at + "the array has Python objects instead of numbers; save it with a numeric dtype");
  EXPECT_EQ(
      outcome_of(npy_file(">f4", "(1,)", "abcd")),
      at + "the dtype '>f4' is not supported; save little-endian floats, signed integers, bytes or booleans");
  EXPECT_EQ(outcome_of(npy_file("|u1", "(1, 2)", "ab", 1, "True")),
            at + "the array is in column-major (Fortran) order; save numpy.ascontiguousarray of it");
  EXPECT_EQ(outcome_of(npy_file("<f4", "(2,)", "abcd")),
            at + "[2] of f32 needs 8 bytes, but the file has 4; copy the file again");
  EXPECT_THAT(outcome_of(npy_file("<f4", "(1099511627776, 1099511627776)", "abcd")),
              HasSubstr("does not fit in memory"));
  EXPECT_EQ(outcome_of(npy_file("|u1", "(1001,)", std::string(1001, 'x'))),
            at + "the array has 1001 B, more than 1000 B; save a smaller one");
  EXPECT_EQ(outcome_of("no array"),
            at + "this is not a NumPy array of format version 1 to 3; save it by numpy.savez");
  EXPECT_EQ(outcome_of(npy_file("|u1", "(4,)", "abcd", 4)),
            at + "this is not a NumPy array of format version 1 to 3; save it by numpy.savez");
  for (const char* head :
       {"{'descr': '|u1', 'shape': (1,)}", "{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)} x", "{'descr'", "{'other': True}", "",
        "{'descr': '|u1' 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '|u1', 'fortran_order': __import__('os'), 'shape': (1,)}"}) {
    const std::string npy =
        std::string("\x93NUMPY\1\0", 8) + static_cast<char>(std::strlen(head)) + '\0' + head + "x";
    EXPECT_THAT(outcome_of(npy), HasSubstr("the header of the NumPy array is damaged at byte")) << head;
  }
  EXPECT_THAT(outcome_of(std::string("\x93NUMPY\2\0\xFF\xFF\xFF\xFF", 12)),
              HasSubstr("bytes, at most 0 are possible"));
}

TEST_F(Npz, RefusesDamage) {
  NpzWriter writer(true);
  writer.add("a", npy_file("|u1", "(40,)", std::string(40, 'x')));
  const std::string whole = writer.bytes();
  EXPECT_EQ(outcome(whole), std::string(40, 'x'));
  EXPECT_THAT(outcome(""), HasSubstr("this is not an .npz file of NumPy"));
  for (size_t length = 1; length < whole.size(); ++length)
    EXPECT_THAT(outcome(whole.substr(0, length)), HasSubstr("its end is missing")) << length;
  int64_t num_seen = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    num_seen += outcome(damaged) != std::string(40, 'x') ? 1 : 0;
  }
  EXPECT_GT(num_seen, std::ssize(whole) / 2);
  NpzWriter twice;
  for (int i = 0; i < 2; ++i) twice.add("a", npy_file("|u1", "()", "x"));
  EXPECT_EQ(outcome(twice.bytes()), "it has two arrays named 'a'; save it again with one");
}

/// Puts a number of 4 bytes where `record`, the last of its kind, has it.
std::string with_number(std::string file, std::string_view record, size_t at, uint32_t value) {
  std::memcpy(file.data() + file.rfind(record) + at, &value, 4);
  return file;
}

TEST_F(Npz, ALyingDirectoryTakesNoMemory) {
  NpzWriter writer(true);
  writer.add("a", npy_file("|u1", "(4,)", "abcd"));
  const std::string whole = writer.bytes();
  EXPECT_WITHIN(
      int64_t{64} << 20,
      EXPECT_EQ(outcome(with_number(whole, "PK\1\2", 24, 0xFFFFFF00)),
                "the zip archive is damaged: its directory lists a wrong size; download or copy it again"));
  EXPECT_EQ(outcome(with_number(whole, "PK\1\2", 20, 0xFFFFFF00)),
            "the zip archive is damaged: a member ends outside the file; download or copy it again");
  EXPECT_EQ(outcome(with_number(whole, "PK\1\2", 42, 0xFFFFFF00)),
            "the zip archive is damaged: its directory lists a wrong offset; download or copy it again");
  EXPECT_THAT(outcome(with_number(whole, "PK\5\6", 16, 0xFFFFFF00)),
              HasSubstr("its directory is outside the file"));
  EXPECT_THAT(outcome(with_number(whole, "PK\5\6", 16, 0xFFFFFFFF)),
              HasSubstr("its 64-bit directory is missing"));
  EXPECT_EQ(outcome(with_number(whole, "PK\1\2", 16, 0)),
            "the array 'a': the array is damaged; copy the file again");
  // Zeros deflate best: as many as the limit lets through, and no more.
  NpzWriter zeros(true);
  zeros.add("a", npy_file("|u1", "(50000000,)", std::string(50'000'000, '\0')));
  EXPECT_WITHIN(int64_t{64} << 20, EXPECT_THAT(outcome(zeros.bytes()), HasSubstr("more than 1000 B")));
}

}  // namespace
}  // namespace hearth::io
