// Mosaic and mixup of YOLOX (Ge et al. 2021, arXiv 2107.08430). A mosaic places four images, each scaled to
// fit the sample, around a random center on a canvas of twice the sample's size, then maps the canvas to
// the sample with a random affine transformation. Boxes are transformed as corners, replaced by their
// bounding boxes, and clipped. Mixup averages the mosaic with one more scaled image. All random numbers of
// a sample come from one Philox sequence in a fixed order, so a sample depends only on (key, index).
#include "data/boxes/box_augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/philox.h"
#include "data/images/warp.h"

namespace hearth::data {
namespace {

constexpr uint32_t kStream = 0xB0C5;
/// Minimum visible fraction of a box's area, and minimum side in pixels, to keep the box.
constexpr double kMinVisibleShare = 0.1;
constexpr double kMinSide = 1;

/// An image scaled to fit into the sample, with its boxes.
struct Fitted {
  std::shared_ptr<const Image> image;
  std::vector<Box> boxes;
};

Box mapped(const Box& box, const Affine& map) {
  const std::array xs{box.x0, box.x1, box.x0, box.x1}, ys{box.y0, box.y0, box.y1, box.y1};
  Box result = box;
  for (size_t i = 0; i < 4; ++i) {
    const double x = map.xx * xs[i] + map.xy * ys[i] + map.x0;
    const double y = map.yx * xs[i] + map.yy * ys[i] + map.y0;
    result.x0 = i == 0 ? x : std::min(result.x0, x);
    result.x1 = i == 0 ? x : std::max(result.x1, x);
    result.y0 = i == 0 ? y : std::min(result.y0, y);
    result.y1 = i == 0 ? y : std::max(result.y1, y);
  }
  result.area = (result.x1 - result.x0) * (result.y1 - result.y0);
  return result;
}

/// Clips a box to a rectangle; its area is 0 if it is outside.
void clip(Box& box, double x0, double y0, double x1, double y1) {
  box.x0 = std::clamp(box.x0, x0, x1);
  box.x1 = std::clamp(box.x1, x0, x1);
  box.y0 = std::clamp(box.y0, y0, y1);
  box.y1 = std::clamp(box.y1, y0, y1);
}

double extent(const Box& box) { return (box.x1 - box.x0) * (box.y1 - box.y0); }

/// Clips boxes to the sample and drops those that are too thin or whose clipped area is below
/// kMinVisibleShare of Box::area. Sets Box::area of the kept ones to the clipped area.
void keep_visible(const Image& image, std::vector<Box>& boxes) {
  for (Box& box : boxes) clip(box, 0, 0, static_cast<double>(image.width), static_cast<double>(image.height));
  std::erase_if(boxes, [](const Box& box) {
    const bool thin = std::min(box.x1 - box.x0, box.y1 - box.y0) <= kMinSide;
    return thin || extent(box) < kMinVisibleShare * box.area;
  });
  for (Box& box : boxes) box.area = extent(box);
}

Fitted fitted(const BoxedImages& set, const ImageReader& reader, int64_t height, int64_t width,
              int64_t index) {
  const BoxedImage& original = set.images.at(static_cast<size_t>(index));
  Fitted result{.image = reader.read(index)};
  const Extent size = fit({original.height, original.width}, {height, width});
  if (result.image->height != size.height || result.image->width != size.width)
    result.image = std::make_shared<const Image>(resize(*result.image, size));
  const Affine map{.xx = static_cast<double>(size.width) / static_cast<double>(original.width),
                   .yy = static_cast<double>(size.height) / static_cast<double>(original.height)};
  for (const Box& box : original.boxes) result.boxes.push_back(mapped(box, map));
  return result;
}

BoxSample framed(const Fitted& original, int64_t height, int64_t width) {
  BoxSample sample{gray_image(height, width), original.boxes};
  paste(*original.image, 0, 0, original.image->height, original.image->width, sample.image, 0, 0);
  return sample;
}

/// Random numbers of one sample, always drawn in the same order.
class Draws {
 public:
  Draws(uint64_t key, int64_t index) : random_(key, static_cast<uint64_t>(index), kStream) {}

  double between(double low, double high) {
    return low + (high - low) * static_cast<double>(random_.uniform());
  }
  bool happens(double probability) { return static_cast<double>(random_.uniform()) < probability; }
  int64_t below(int64_t bound) { return static_cast<int64_t>(random_.below(static_cast<uint32_t>(bound))); }

 private:
  PhiloxSequence random_;
};

/// Draws the affine map from a mosaic's canvas to the sample.
Affine draw_affine(const BoxAugment& augment, int64_t height, int64_t width, Draws& draws) {
  constexpr double kRadians = std::numbers::pi / 180;
  const double angle = draws.between(-augment.degrees, augment.degrees) * kRadians;
  const double scale = draws.between(augment.scale_min, augment.scale_max);
  const double shear_x = std::tan(draws.between(-augment.shear, augment.shear) * kRadians);
  const double shear_y = std::tan(draws.between(-augment.shear, augment.shear) * kRadians);
  const double cosine = scale * std::cos(angle), sine = scale * std::sin(angle);
  Affine map{.xx = cosine - shear_y * sine,
             .xy = sine + shear_y * cosine,
             .yx = -sine + shear_x * cosine,
             .yy = cosine + shear_x * sine};
  map.x0 = draws.between(-augment.translate, augment.translate) * static_cast<double>(width);
  map.y0 = draws.between(-augment.translate, augment.translate) * static_cast<double>(height);
  return map;
}

/// Copies an image into quarter `quarter` of the canvas, with one corner of the image at the center, and
/// appends its boxes, shifted and clipped to the visible part. `canvas` has a margin of one pixel.
void add_quarter(const Fitted& original, int quarter, int64_t center_y, int64_t center_x, Image& canvas,
                 std::vector<Box>& boxes) {
  const Image& image = *original.image;
  const bool left = quarter % 2 == 0, top = quarter < 2;
  const int64_t canvas_height = canvas.height - 2, canvas_width = canvas.width - 2;
  const int64_t width = std::min(image.width, left ? center_x : canvas_width - center_x);
  const int64_t height = std::min(image.height, top ? center_y : canvas_height - center_y);
  const int64_t from_x = left ? image.width - width : 0, from_y = top ? image.height - height : 0;
  const int64_t x = left ? center_x - width : center_x, y = top ? center_y - height : center_y;
  paste(image, from_y, from_x, height, width, canvas, y + 1, x + 1);
  for (Box box : original.boxes) {
    const auto shift_x = static_cast<double>(x - from_x), shift_y = static_cast<double>(y - from_y);
    box = mapped(box, {.x0 = shift_x, .y0 = shift_y});
    const double whole = box.area;
    clip(box, static_cast<double>(x), static_cast<double>(y), static_cast<double>(x + width),
         static_cast<double>(y + height));
    if (extent(box) > 0 && extent(box) >= kMinVisibleShare * whole) boxes.push_back(box);
  }
}

BoxSample make_mosaic(const BoxedImages& set, const ImageReader& reader, const BoxAugment& augment,
                      int64_t height, int64_t width, int64_t index, Draws& draws) {
  const auto center_y = static_cast<int64_t>(draws.between(0.5, 1.5) * static_cast<double>(height));
  const auto center_x = static_cast<int64_t>(draws.between(0.5, 1.5) * static_cast<double>(width));
  Image canvas = gray_image(2 * height + 2, 2 * width + 2);
  std::vector<Box> boxes;
  for (int quarter = 0; quarter < 4; ++quarter) {
    const int64_t which = quarter == 0 ? index : draws.below(std::ssize(set.images));
    add_quarter(fitted(set, reader, height, width, which), quarter, center_y, center_x, canvas, boxes);
  }
  const Affine map = draw_affine(augment, height, width, draws);
  BoxSample sample;
  for (const Box& box : boxes) sample.boxes.push_back(mapped(box, map));
  // `map` starts from the mosaic, but the canvas has a margin of one pixel around it: shifts the map by (-1,
  // -1).
  Affine from_margin = map;
  from_margin.x0 -= map.xx + map.xy;
  from_margin.y0 -= map.yx + map.yy;
  sample.image = warp(canvas, from_margin, height, width);
  keep_visible(sample.image, sample.boxes);
  return sample;
}

/// Draws the index of a random image that has boxes; -1 if 16 draws find none.
int64_t draw_labeled(const BoxedImages& set, Draws& draws) {
  constexpr int kTries = 16;
  int64_t found = -1;
  for (int i = 0; i < kTries && found < 0; ++i) {
    const int64_t which = draws.below(std::ssize(set.images));
    if (!set.images[static_cast<size_t>(which)].boxes.empty()) found = which;
  }
  return found;
}

void mix_up(const BoxedImages& set, const ImageReader& reader, const BoxAugment& augment, Draws& draws,
            BoxSample& sample) {
  const int64_t height = sample.image.height, width = sample.image.width;
  const int64_t which = draw_labeled(set, draws);
  const double scale = draws.between(augment.mixup_scale_min, augment.mixup_scale_max);
  const bool flips = draws.happens(0.5);
  const auto scaled = [&](int64_t side) {
    return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(side) * scale));
  };
  const int64_t frame_height = scaled(height), frame_width = scaled(width);
  const int64_t from_y = draws.below(std::max<int64_t>(1, frame_height - height));
  const int64_t from_x = draws.below(std::max<int64_t>(1, frame_width - width));
  if (which < 0) return;
  const Fitted original = fitted(set, reader, frame_height, frame_width, which);
  BoxSample other = framed(original, frame_height, frame_width);
  if (flips) {
    mirror(other.image);
    for (Box& box : other.boxes) box = mapped(box, {.xx = -1, .x0 = static_cast<double>(frame_width)});
  }
  BoxSample part{gray_image(height, width), {}};
  paste(other.image, from_y, from_x, std::min(height, frame_height), std::min(width, frame_width), part.image,
        0, 0);
  for (const Box& box : other.boxes)
    part.boxes.push_back(
        mapped(box, {.x0 = -static_cast<double>(from_x), .y0 = -static_cast<double>(from_y)}));
  keep_visible(part.image, part.boxes);
  blend(sample.image, part.image);
  sample.boxes.insert(sample.boxes.end(), part.boxes.begin(), part.boxes.end());
}

/// Draws a random shift in [-maximum, maximum]; 0 with probability 1/2.
int draw_shift(int maximum, Draws& draws) {
  const auto shift = static_cast<int>(draws.between(-1, 1) * maximum);
  return draws.happens(0.5) ? shift : 0;
}

}  // namespace

void check_box_augment(const BoxAugment& augment) {
  const auto demand = [](double value, double minimum, double maximum, const char* what) {
    if (!(value >= minimum && value <= maximum))
      user_error("expected {} from {} to {}, got {}", what, minimum, maximum, value);
  };
  demand(augment.mosaic, 0, 1, "a probability of mosaics");
  demand(augment.mixup, 0, 1, "a probability of mixup");
  demand(augment.flip, 0, 1, "a probability of mirrored images");
  demand(augment.hsv, 0, 1, "a probability of shifted colors");
  demand(augment.degrees, 0, 180, "degrees of rotation");
  demand(augment.translate, 0, 1, "a share of translation");
  demand(augment.shear, 0, 30, "degrees of shear");
  demand(augment.scale_min, 0.01, 10, "a mosaic's smallest scale");
  demand(augment.scale_max, augment.scale_min, 10, "a mosaic's largest scale");
  demand(augment.mixup_scale_min, 0.01, 10, "mixup's smallest scale");
  demand(augment.mixup_scale_max, augment.mixup_scale_min, 10, "mixup's largest scale");
  demand(augment.hue, 0, 90, "a shift of the hue");
  demand(augment.saturation, 0, 255, "a shift of the saturation");
  demand(augment.value, 0, 255, "a shift of the value");
}

Box Letterbox::undo(const Box& box) const {
  return mapped(box, {.xx = 1 / scale_x,
                      .x0 = -static_cast<double>(pad_x) / scale_x,
                      .yy = 1 / scale_y,
                      .y0 = -static_cast<double>(pad_y) / scale_y});
}

BoxSample make_train_sample(const BoxedImages& set, const ImageReader& reader, const BoxAugment& augment,
                            int64_t height, int64_t width, uint64_t key, int64_t index) {
  Draws draws(key, index);
  BoxSample sample;
  if (draws.happens(augment.mosaic)) {
    sample = make_mosaic(set, reader, augment, height, width, index, draws);
    if (draws.happens(augment.mixup) && !sample.boxes.empty()) mix_up(set, reader, augment, draws, sample);
  } else {
    sample = framed(fitted(set, reader, height, width, index), height, width);
    keep_visible(sample.image, sample.boxes);
  }
  if (draws.happens(augment.hsv)) {
    const int hue = draw_shift(augment.hue, draws);
    const int saturation = draw_shift(augment.saturation, draws);
    shift_hsv(sample.image, hue, saturation, draw_shift(augment.value, draws));
  }
  if (draws.happens(augment.flip)) {
    mirror(sample.image);
    for (Box& box : sample.boxes) box = mapped(box, {.xx = -1, .x0 = static_cast<double>(width)});
  }
  return sample;
}

Letterbox letterbox_of(Extent original, Extent frame) {
  const Extent size = fit(original, frame);
  return {.scale_x = static_cast<double>(size.width) / static_cast<double>(original.width),
          .scale_y = static_cast<double>(size.height) / static_cast<double>(original.height)};
}

EvalSample letterbox(const Image& image, int64_t height, int64_t width) {
  const Extent size = fit(image.size(), {height, width});
  const Fitted original{.image = std::make_shared<const Image>(resize(image, size))};
  EvalSample sample{framed(original, height, width), {}};
  sample.letterbox = letterbox_of(image.size(), {height, width});
  return sample;
}

EvalSample make_eval_sample(const BoxedImages& set, const ImageReader& reader, int64_t height, int64_t width,
                            int64_t index) {
  const BoxedImage& original = set.images.at(static_cast<size_t>(index));
  const Fitted fitted_image = fitted(set, reader, height, width, index);
  EvalSample sample{framed(fitted_image, height, width), {}};
  sample.letterbox = letterbox_of({original.height, original.width}, {height, width});
  return sample;
}

}  // namespace hearth::data
