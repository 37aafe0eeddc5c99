#include "hub/export_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth::hub {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

models::DecoderConfig config_of(const std::string& family, int64_t window,
                                const std::string& rope = "default") {
  models::DecoderConfig config{.family = family, .max_positions = 4096, .windows = {window, 0}};
  config.rope.type = rope;
  config.rope.original_positions = 2048;
  return config;
}

TEST(GgufNotes, NameWhatLlamaCppComputesOtherwise) {
  for (const char* family : {"mistral", "qwen2", "phi3"})
    EXPECT_THAT(gguf_notes(config_of(family, 2047)), ElementsAre(HasSubstr("sliding window of 2047 tokens")))
        << family;
  EXPECT_THAT(gguf_notes(config_of("gemma2", 2047)), IsEmpty());
  EXPECT_THAT(gguf_notes(config_of("phi3", 0)), IsEmpty());
  EXPECT_THAT(gguf_notes(config_of("phi3", 4096)), IsEmpty());
  EXPECT_THAT(gguf_notes(config_of("phi3", 0, "longrope")),
              ElementsAre(HasSubstr("if its context (-c) is above 2048 tokens")));
  EXPECT_THAT(gguf_notes(config_of("phi3", 2047, "longrope")), testing::SizeIs(2));
}

}  // namespace
}  // namespace hearth::hub
