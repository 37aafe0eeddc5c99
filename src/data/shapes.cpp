#include "data/shapes.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/philox.h"
#include "data/dataset.h"

namespace hearth::data {
namespace {

constexpr const char* kNames[kNumShapes] = {"circle", "square", "triangle", "star",
                                            "cross",  "ring",   "bar",      "crescent"};

/// Whether (x, y), in units of the shape's radius and turned to its own axes, lies inside.
bool inside(int64_t label, float x, float y) {
  const float r = std::hypot(x, y);
  switch (label) {
    case 0:
      return r < 0.9F;
    case 1:
      return std::max(std::fabs(x), std::fabs(y)) < 0.75F;
    case 2:
      return y < 0.6F && y > -1.0F + 1.9F * std::fabs(x);
    case 3:
      return r < 0.62F + 0.38F * std::cos(5 * std::atan2(y, x));
    case 4:
      return std::min(std::fabs(x), std::fabs(y)) < 0.27F && std::max(std::fabs(x), std::fabs(y)) < 0.95F;
    case 5:
      return r < 0.95F && r > 0.55F;
    case 6:
      return std::fabs(x) < 0.95F && std::fabs(y) < 0.3F;
    default:
      return r < 0.95F && std::hypot(x - 0.45F, y) > 0.75F;
  }
}

struct Style {
  float centre_x, centre_y, radius, turn;
  float shape[3], from[3], to[3];
  float gradient, noise;
};

Style draw_style(PhiloxSequence& random, int64_t side) {
  Style s{};
  const auto size = static_cast<float>(side);
  s.radius = size * random.uniform(0.2F, 0.4F);
  s.centre_x = random.uniform(s.radius, size - s.radius);
  s.centre_y = random.uniform(s.radius, size - s.radius);
  s.turn = random.uniform(0, 2 * std::numbers::pi_v<float>);
  for (int c = 0; c < 3; ++c) {
    s.shape[c] = random.uniform(0, 255);
    s.from[c] = random.uniform(0, 255);
    s.to[c] = random.uniform(0, 255);
  }
  // A shape that cannot be told from its background teaches nothing.
  const int c = static_cast<int>(random.below(3));
  const float background = (s.from[c] + s.to[c]) / 2;
  s.shape[c] = background > 127 ? background - 100 : background + 100;
  s.gradient = random.uniform(0, 2 * std::numbers::pi_v<float>);
  s.noise = random.uniform(5, 30);
  return s;
}

uint8_t to_byte(float value) { return static_cast<uint8_t>(std::clamp(value + 0.5F, 0.0F, 255.0F)); }

class Shapes : public Dataset {
 public:
  explicit Shapes(const DatasetOptions& options) : count_(options.count), seed_(options.seed) {
    // Training and test pictures come from series that never meet.
    if (options.split != "train") seed_ ^= 0x7e57'0000'0000'0000ULL;
    image_size_ = options.image_size;
    channels_ = 3;
    class_names_.assign(std::begin(kNames), std::end(kNames));
  }
  int64_t size() const override { return count_; }
  void read(int64_t index, uint8_t* pixels, int32_t* label) const override {
    *label = draw_shape(seed_, index, image_size_, pixels, nullptr).label;
  }

 private:
  int64_t count_;
  uint64_t seed_;
};

}  // namespace

const char* shape_name(int64_t label) { return kNames[label]; }

ShapeScene draw_shape(uint64_t seed, int64_t index, int64_t side, uint8_t* pixels, uint8_t* mask) {
  PhiloxSequence random(seed, static_cast<uint64_t>(index), 0x5a9e);
  ShapeScene scene{.label = static_cast<int32_t>(random.below(kNumShapes)), .box = {side, side, 0, 0}};
  const Style s = draw_style(random, side);
  const float cosine = std::cos(s.turn);
  const float sine = std::sin(s.turn);
  for (int64_t y = 0; y < side; ++y) {
    for (int64_t x = 0; x < side; ++x) {
      const float dx = (static_cast<float>(x) + 0.5F - s.centre_x) / s.radius;
      const float dy = (static_cast<float>(y) + 0.5F - s.centre_y) / s.radius;
      const bool in_shape = inside(scene.label, cosine * dx + sine * dy, cosine * dy - sine * dx);
      const float along =
          (std::cos(s.gradient) * static_cast<float>(x) + std::sin(s.gradient) * static_cast<float>(y)) /
          (1.5F * static_cast<float>(side));
      const float mix = std::clamp(along + 0.5F, 0.0F, 1.0F);
      for (int c = 0; c < 3; ++c) {
        const float clean = in_shape ? s.shape[c] : s.from[c] + (s.to[c] - s.from[c]) * mix;
        pixels[(y * side + x) * 3 + c] = to_byte(clean + s.noise * (random.uniform() - 0.5F) * 2);
      }
      if (mask != nullptr) mask[y * side + x] = in_shape ? 1 : 0;
      if (!in_shape) continue;
      scene.box = {std::min(scene.box[0], x), std::min(scene.box[1], y), std::max(scene.box[2], x + 1),
                   std::max(scene.box[3], y + 1)};
    }
  }
  return scene;
}

std::unique_ptr<Dataset> open_shapes(const DatasetOptions& options) {
  return std::make_unique<Shapes>(options);
}

}  // namespace hearth::data
