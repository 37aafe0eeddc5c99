#include "data/shapes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numbers>

#include "base/error.h"
#include "base/philox.h"
#include "data/boxes/box.h"
#include "data/dataset.h"

namespace hearth::data {
namespace {

struct Point {
  float x = 0;
  float y = 0;
};

float dot(Point a, Point b) { return a.x * b.x + a.y * b.y; }
float length(Point p) { return std::sqrt(dot(p, p)); }
float box(Point p, float half_width, float half_height) {
  return std::max(std::abs(p.x) - half_width, std::abs(p.y) - half_height);
}

// Signed distance functions (negative inside) of shapes of about unit radius, y upwards; star and heart
// follow Inigo Quilez, "2D distance functions".
float circle(Point p) { return length(p) - 0.9F; }
float ring(Point p) { return std::abs(length(p) - 0.72F) - 0.2F; }
float square(Point p) { return box(p, 0.75F, 0.75F); }
float frame(Point p) { return std::abs(box(p, 0.66F, 0.66F)) - 0.17F; }
float cross(Point p) { return std::min(box(p, 1, 0.28F), box(p, 0.28F, 1)); }
float crescent(Point p) { return std::max(length(p) - 0.95F, 0.8F - length({p.x - 0.5F, p.y})); }

float triangle(Point p) {
  const float sides = 0.8660254F * std::abs(p.x) + 0.5F * p.y;
  return std::max(sides, -p.y) - 0.5F;
}

float star(Point p) {
  constexpr Point kFold{0.80901699F, -0.58778525F};
  p.x = std::abs(p.x);
  const float first = 2 * std::max(dot(kFold, p), 0.0F);
  p = {p.x - first * kFold.x, p.y - first * kFold.y};
  const Point mirrored{-kFold.x, kFold.y};
  const float second = 2 * std::max(dot(mirrored, p), 0.0F);
  p = {std::abs(p.x - second * mirrored.x), p.y - second * mirrored.y - 1};
  constexpr float kInner = 0.45F;
  const Point edge{kInner * 0.58778525F, kInner * 0.80901699F - 1};
  const float along = std::clamp(dot(p, edge) / dot(edge, edge), 0.0F, 1.0F);
  const float distance = length({p.x - along * edge.x, p.y - along * edge.y});
  return p.y * edge.x - p.x * edge.y < 0 ? -distance : distance;
}

float heart(Point p) {
  constexpr float kScale = 0.62F;
  p = {std::abs(p.x) * kScale, p.y * kScale + 0.55F};
  if (p.x + p.y > 1) return (length({p.x - 0.25F, p.y - 0.75F}) - 0.35355339F) / kScale;
  const float slide = 0.5F * std::max(p.x + p.y, 0.0F);
  const float distance = std::min(length({p.x, p.y - 1}), length({p.x - slide, p.y - slide}));
  return (p.x < p.y ? -distance : distance) / kScale;
}

float arrow(Point p) {
  const float shaft = box({p.x + 0.4F, p.y}, 0.6F, 0.2F);
  const float head = std::max(0.05F - p.x, (std::abs(p.y) - (1 - p.x) * 0.85F) * 0.76F);
  return std::min(shaft, head);
}

struct Shape {
  const char* name;
  float (*distance)(Point);
};
constexpr std::array<Shape, kNumShapes> kShapes{{{"circle", circle},
                                                 {"square", square},
                                                 {"triangle", triangle},
                                                 {"star", star},
                                                 {"cross", cross},
                                                 {"ring", ring},
                                                 {"frame", frame},
                                                 {"heart", heart},
                                                 {"crescent", crescent},
                                                 {"arrow", arrow}}};

using Color = std::array<float, 3>;

Color random_color(PhiloxSequence& random) {
  return {random.uniform(0, 255), random.uniform(0, 255), random.uniform(0, 255)};
}

float luma(const Color& color) { return 0.299F * color[0] + 0.587F * color[1] + 0.114F * color[2]; }

/// Random parameters of a generated image, except for its noise.
struct Scene {
  int32_t label = 0;
  Point center;
  float radius = 0;
  float cosine = 1;
  float sine = 0;
  Color ink{};
  Color ground{};
  Color slope_x{};
  Color slope_y{};
  std::array<Point, 3> dots{};
  std::array<float, 3> dot_radii{};
  float noise = 0;
};

Scene random_scene(PhiloxSequence& random, float width, float height) {
  const float side = std::min(width, height);
  Scene scene;
  scene.label = static_cast<int32_t>(random.below(kShapes.size()));
  scene.radius = random.uniform(0.24F, 0.44F) * side;
  const float margin = 0.95F * scene.radius;
  scene.center = {random.uniform(margin, width - margin), random.uniform(margin, height - margin)};
  const float angle = random.uniform(0, 2 * std::numbers::pi_v<float>);
  scene.cosine = std::cos(angle);
  scene.sine = std::sin(angle);
  scene.ground = random_color(random);
  for (size_t channel = 0; channel < 3; ++channel) {
    scene.slope_x[channel] = random.uniform(-60, 60);
    scene.slope_y[channel] = random.uniform(-60, 60);
  }
  do {
    scene.ink = random_color(random);
  } while (std::abs(luma(scene.ink) - luma(scene.ground)) < 70);
  for (size_t i = 0; i < scene.dots.size(); ++i) {
    scene.dots[i] = {random.uniform(0, width), random.uniform(0, height)};
    scene.dot_radii[i] = random.uniform(0.02F, 0.06F) * side;
  }
  scene.noise = random.uniform(0, 2.0F);
  return scene;
}

/// Returns the fraction of the pixel at `p` that the shape covers, in [0, 1].
float shape_cover(const Scene& scene, Point p) {
  const Point offset{(p.x - scene.center.x) / scene.radius, (p.y - scene.center.y) / scene.radius};
  if (dot(offset, offset) > 2.25F) return 0;
  const Point turned{scene.cosine * offset.x + scene.sine * offset.y,
                     scene.sine * offset.x - scene.cosine * offset.y};
  const float distance = kShapes[static_cast<size_t>(scene.label)].distance(turned);
  return std::clamp(0.5F - distance * scene.radius, 0.0F, 1.0F);
}

float dots_cover(const Scene& scene, Point p) {
  float cover = 0;
  for (size_t i = 0; i < scene.dots.size(); ++i) {
    const Point offset{p.x - scene.dots[i].x, p.y - scene.dots[i].y};
    const float reach = scene.dot_radii[i] + 0.5F;
    if (dot(offset, offset) < reach * reach) cover = std::max(cover, std::min(1.0F, reach - length(offset)));
  }
  return cover;
}

Color pixel_color(const Scene& scene, float width, float height, Point p, float cover) {
  const float x = p.x / width - 0.5F;
  const float y = p.y / height - 0.5F;
  const float ink = std::max(cover, dots_cover(scene, p));
  Color color;
  for (size_t c = 0; c < 3; ++c) {
    const float ground = scene.ground[c] + scene.slope_x[c] * x + scene.slope_y[c] * y;
    color[c] = ground + ink * (scene.ink[c] - ground);
  }
  return color;
}

/// Triangular noise in [-15, 15], from eight random bits per value.
class Noise {
 public:
  Noise(uint64_t key, int64_t index) : random_(key, static_cast<uint64_t>(index), 1) {}
  float next() {
    if (left_ == 0) {
      bits_ = random_.next();
      left_ = 4;
    }
    const auto byte = static_cast<int>(bits_ & 255);
    bits_ >>= 8;
    --left_;
    return static_cast<float>((byte & 15) + (byte >> 4) - 15);
  }

 private:
  PhiloxSequence random_;
  uint32_t bits_ = 0;
  int left_ = 0;
};

uint8_t to_byte(float value) { return static_cast<uint8_t>(std::lround(std::clamp(value, 0.0F, 255.0F))); }

void include(std::array<int64_t, 4>& box, int64_t x, int64_t y) {
  box = {std::min(box[0], x), std::min(box[1], y), std::max(box[2], x + 1), std::max(box[3], y + 1)};
}

class Shapes : public Dataset {
 public:
  explicit Shapes(const DatasetOptions& options) : count_(options.count), seed_(options.seed) {
    if (options.channels != 3)
      user_error("expected 3 channels for the shapes dataset, got {}", options.channels);
    check_shapes(options.image_size, count_);
    seed_ = seed_of_split(seed_, options.split);
    image_size_ = options.image_size;
    channels_ = 3;
    class_names_ = shape_names();
  }
  int64_t size() const override { return count_; }
  void read(int64_t index, uint8_t* pixels, int32_t* label) const override {
    *label = draw_shape(seed_, index, image_size_, pixels, nullptr).label;
  }
  int32_t check(int64_t index) const override {
    PhiloxSequence random(seed_, static_cast<uint64_t>(index));
    return random_scene(random, static_cast<float>(image_size_.width), static_cast<float>(image_size_.height))
        .label;
  }

 private:
  int64_t count_;
  uint64_t seed_;
};

}  // namespace

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

void check_shapes(Extent size, int64_t count) {
  if (size.shorter() < 8 || size.longer() > 4096)
    user_error("expected shapes of 8 to 4096 pixels a side, got {}x{}", size.width, size.height);
  if (count < 1) user_error("expected at least 1 image in the shapes dataset, got {}", count);
}

uint64_t seed_of_split(uint64_t seed, std::string_view split) {
  return split == "train" ? seed : seed ^ 0x7e57'0000'0000'0000ULL;
}

ShapeScene draw_shape(uint64_t seed, int64_t index, Extent size, uint8_t* pixels, uint8_t* mask) {
  const auto width = static_cast<float>(size.width), height = static_cast<float>(size.height);
  PhiloxSequence random(seed, static_cast<uint64_t>(index));
  const Scene scene = random_scene(random, width, height);
  Noise noise(seed, index);
  ShapeScene truth{.label = scene.label, .box = {size.width, size.height, 0, 0}};
  for (int64_t y = 0; y < size.height; ++y) {
    for (int64_t x = 0; x < size.width; ++x, pixels += 3) {
      const Point p{static_cast<float>(x) + 0.5F, static_cast<float>(y) + 0.5F};
      const float cover = shape_cover(scene, p);
      const Color color = pixel_color(scene, width, height, p, cover);
      for (size_t c = 0; c < 3; ++c) pixels[c] = to_byte(color[c] + scene.noise * noise.next());
      if (mask != nullptr) mask[y * size.width + x] = cover > 0.5F ? 1 : 0;
      if (cover > 0.5F) include(truth.box, x, y);
    }
  }
  return truth;
}

BoxedImages shape_boxes(uint64_t series, int64_t count, Extent size) {
  check_shapes(size, count);
  BoxedImages made{.class_names = shape_names()};
  for (int64_t i = 0; i < kNumShapes; ++i) made.category_ids.push_back(i);
  Image image{.height = size.height, .width = size.width, .channels = 3};
  image.pixels.resize(static_cast<size_t>(3 * size.num_pixels()));
  const auto draw = [=](int64_t index) {
    Image drawn = image;
    draw_shape(series, index, size, drawn.pixels.data(), nullptr);
    return drawn;
  };
  for (int64_t i = 0; i < count; ++i) {
    const ShapeScene scene = draw_shape(series, i, size, image.pixels.data(), nullptr);
    Box box{.label = scene.label};
    box.x0 = static_cast<double>(scene.box[0]);
    box.y0 = static_cast<double>(scene.box[1]);
    box.x1 = static_cast<double>(scene.box[2]);
    box.y1 = static_cast<double>(scene.box[3]);
    box.area = (box.x1 - box.x0) * (box.y1 - box.y0);
    made.images.push_back({.file = fmt::format("shape {}", i),
                           .width = size.width,
                           .height = size.height,
                           .id = i + 1,
                           .boxes = {box}});
  }
  made.draw = draw;
  return made;
}

std::unique_ptr<Dataset> open_shapes(const DatasetOptions& options) {
  return std::make_unique<Shapes>(options);
}

}  // namespace hearth::data
