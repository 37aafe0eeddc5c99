#include "net/sha.h"

#include <gmock/gmock.h>

#include <string_view>

namespace hearth::net {
namespace {

template <typename Hash>
std::string hash_of(std::string_view text, size_t piece_bytes = 1 << 20) {
  Hash hash;
  for (size_t at = 0; at < text.size(); at += piece_bytes)
    hash.update(std::as_bytes(std::span(text.substr(at, piece_bytes))));
  return hash.hex();
}

// Values of FIPS 180-4's examples and of sha1sum and sha256sum.
TEST(Sha, KnownValues) {
  EXPECT_EQ(hash_of<Sha1>(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(hash_of<Sha1>("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(hash_of<Sha1>("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  EXPECT_EQ(hash_of<Sha1>(std::string(1'000'000, 'a')), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
  EXPECT_EQ(hash_of<Sha256>(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of<Sha256>("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of<Sha256>("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_of<Sha256>(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha, PiecesOfAnySizeAgree) {
  for (const size_t length : {55, 56, 63, 64, 65, 119, 128, 1000}) {
    const std::string text(length, 'x');
    for (const size_t piece : {1, 7, 64, 100}) {
      EXPECT_EQ(hash_of<Sha256>(text, piece), hash_of<Sha256>(text)) << length << " " << piece;
      EXPECT_EQ(hash_of<Sha1>(text, piece), hash_of<Sha1>(text)) << length << " " << piece;
    }
  }
}

}  // namespace
}  // namespace hearth::net
