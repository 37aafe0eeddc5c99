#pragma once

#include "gpu/card.h"

namespace hearth::gpu {

/// Settings of the emulator for one test.
class EmulatorTest : public testing::Test {
 protected:
  ~EmulatorTest() override { emu::settings() = {}; }
};

}  // namespace hearth::gpu
