#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include "base/file.h"
#include "io/safetensors.h"
#include "shared_data.h"

namespace hearth {
namespace {

/// What the example printed; fails the test where it ends with an error.
std::string output_of(const std::string& example, const std::string& arguments) {
  FILE* pipe = popen((HEARTH_EXAMPLES "/" + example + " " + arguments + " 2>&1").c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string output;
  std::array<char, 256> part;
  while (fgets(part.data(), part.size(), pipe) != nullptr) output += part.data();
  EXPECT_EQ(pclose(pipe), 0) << output;
  return output;
}

TEST(SlowExamples, OwnModelLearnsItsShapes) {
  const fs::path weights =
      fs::temp_directory_path() / ("hearth_own_model_" + std::to_string(getpid()) + ".safetensors");
  const std::string output = output_of("own_model", weights.string());
  std::cout << output;
  const size_t at = output.rfind('\n', output.find('%'));
  ASSERT_NE(at, std::string::npos);
  EXPECT_GE(std::atof(output.c_str() + at + 1), 60.0);
  const io::SafetensorsFile file(weights);
  const io::TensorView* conv = file.find("block.conv.weight");
  ASSERT_NE(conv, nullptr);
  EXPECT_EQ(conv->shape, (Shape{32, 32, 3, 3}));
  fs::remove(weights);
}

TEST(Examples, OwnModelTakesUnderSixtyLines) {
  const std::string source = read_file(kSourceDir + "/examples/own_model.cpp");
  EXPECT_LT(std::count(source.begin(), source.end(), '\n'), 60);
}

TEST(SlowExamples, WeightsOfBurnsMnistScoreAsInTorch) {
  HEARTH_SHARED_DATA(weights, "models/mnist_burn/mnist.safetensors");
  HEARTH_SHARED_DATA(mnist, "mnist");
  EXPECT_EQ(output_of("mnist_burn", weights.string() + " " + mnist.string()), "9917/10000\n");
}

}  // namespace
}  // namespace hearth
