// A first check from C++17.
//
//     c++ -std=c++17 first_check.cpp $(pkg-config --cflags --libs tollgate) -o first_check
#include <iostream>
#include <tollgate.hpp>

int main()
{
    try {
        auto policy = tollgate::policy::builder().lane("http/heavy", "10/minute burst 3").build();
        tollgate::limiter limiter(policy);
        const auto heavy = limiter.lane("http/heavy");
        for (int request = 1; request <= 4; request++) {
            const auto verdict = limiter.check("agent-7", heavy);
            if (verdict)
                std::cout << "request " << request << ": 200, " << verdict.remaining() << " left\n";
            else
                std::cout << "request " << request << ": 429, retry after "
                          << std::chrono::ceil<std::chrono::seconds>(verdict.retry_after().value()).count() << " s\n";
        }
    } catch (const tollgate::error &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
