#include "data/boxes/draw_boxes.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>

#include "base/error.h"

namespace hearth::data {
namespace {

constexpr int64_t kRows = 5, kColumns = 3;

/// Bitmap of a letter: rows of three pixels from the top, # for ink.
struct Glyph {
  char letter;
  const char* ink;
};
constexpr Glyph kGlyphs[] = {
    {'A', ".#.#.#####.##.#"}, {'B', "##.#.###.#.###."}, {'C', ".###..#..#...##"}, {'D', "##.#.##.##.###."},
    {'E', "####..##.#..###"}, {'F', "####..##.#..#.."}, {'G', ".###..#.##.#.##"}, {'H', "#.##.#####.##.#"},
    {'I', "###.#..#..#.###"}, {'J', "..#..#..##.#.#."}, {'K', "#.##.###.#.##.#"}, {'L', "#..#..#..#..###"},
    {'M', "#.########.##.#"}, {'N', "##.#.##.##.##.#"}, {'O', ".#.#.##.##.#.#."}, {'P', "##.#.###.#..#.."},
    {'Q', ".#.#.##.#.#...#"}, {'R', "##.#.###.#.##.#"}, {'S', ".###...#...###."}, {'T', "###.#..#..#..#."},
    {'U', "#.##.##.##.####"}, {'V', "#.##.##.##.#.#."}, {'W', "#.##.########.#"}, {'X', "#.##.#.#.#.##.#"},
    {'Y', "#.##.#.#..#..#."}, {'Z', "###..#.#.#..###"}, {'0', "####.##.##.####"}, {'1', ".#.##..#..#.###"},
    {'2', "###..#####..###"}, {'3', "###..####..####"}, {'4', "#.##.####..#..#"}, {'5', "####..###..####"},
    {'6', "####..####.####"}, {'7', "###..#.#..#..#."}, {'8', "####.#####.####"}, {'9', "####.####..####"},
    {'.', ".............#."}, {'%', "#.#..#.#.#..#.#"}, {'-', "......###......"}, {'_', "............###"}};

const Glyph* glyph_of(char letter) {
  const auto upper = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  const auto* const found = std::ranges::find(kGlyphs, upper, &Glyph::letter);
  return found == std::end(kGlyphs) ? nullptr : found;
}

class Canvas {
 public:
  explicit Canvas(Image& image) : image_(image) {}

  void fill(int64_t x0, int64_t y0, int64_t x1, int64_t y1, std::array<uint8_t, 3> color) {
    for (int64_t y = std::max<int64_t>(0, y0); y < std::min(image_.height, y1); ++y) {
      for (int64_t x = std::max<int64_t>(0, x0); x < std::min(image_.width, x1); ++x)
        std::ranges::copy(color, image_.pixels.begin() + (y * image_.width + x) * 3);
    }
  }
  void frame(int64_t x0, int64_t y0, int64_t x1, int64_t y1, int64_t thick, std::array<uint8_t, 3> color) {
    fill(x0, y0, x1, y0 + thick, color);
    fill(x0, y1 - thick, x1, y1, color);
    fill(x0, y0, x0 + thick, y1, color);
    fill(x1 - thick, y0, x1, y1, color);
  }
  void write(std::string_view text, int64_t x, int64_t y, int64_t scale, std::array<uint8_t, 3> color) {
    for (const char letter : text) {
      const Glyph* glyph = glyph_of(letter);
      for (int64_t i = 0; glyph != nullptr && glyph->ink[i] != '\0'; ++i) {
        const int64_t left = x + i % kColumns * scale, top = y + i / kColumns * scale;
        if (glyph->ink[i] == '#') fill(left, top, left + scale, top + scale, color);
      }
      x += (kColumns + 1) * scale;
    }
  }

 private:
  Image& image_;
};

}  // namespace

void draw_boxes(Image& image, const std::vector<LabeledBox>& boxes) {
  HEARTH_CHECK(image.channels == 3);
  Canvas canvas(image);
  const int64_t scale = std::max<int64_t>(1, image.size().longer() / 200);
  const int64_t thick = std::max<int64_t>(1, image.size().longer() / 240);
  for (const LabeledBox& one : boxes) {
    const int64_t x0 = std::llround(one.box.x0), y0 = std::llround(one.box.y0);
    canvas.frame(x0, y0, std::llround(one.box.x1), std::llround(one.box.y1), thick, one.color);
    if (one.text.empty()) continue;
    const int64_t height = (kRows + 2) * scale;
    const int64_t width = (std::ssize(one.text) * (kColumns + 1) + 1) * scale;
    // The text is above the box, or inside its upper edge if there is no room above.
    const int64_t top = y0 >= height ? y0 - height : y0;
    canvas.fill(x0, top, x0 + width, top + height, one.color);
    const int brightness = one.color[0] * 3 + one.color[1] * 6 + one.color[2];
    const uint8_t ink = brightness > 1280 ? 0 : 255;
    canvas.write(one.text, x0 + scale, top + scale, scale, {ink, ink, ink});
  }
}

}  // namespace hearth::data
